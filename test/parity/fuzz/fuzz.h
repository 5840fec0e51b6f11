// The graph fuzzer's entry: seeded random programs, each run on the base engine and on
// Overdrive, everything they can observe compared. Owns nothing between calls. One run at a
// time in a process: it switches the default engine, the CPU allocator and the warnings.
// Leaves the choice of engine library to whoever links it (Overdrive, or a faulty build).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace overdrive::fuzz {

struct FuzzOptions {
  int64_t programs = 2000;
  uint64_t seed = 1;        // program i is made from seed + i, so one program can be run again alone
  double minutes = 0;       // above 0: go on for that long, whatever `programs` says
  bool quiet = false;       // print differences only
  bool shrink = true;       // make a differing program small before printing it
  int max_differences = 5;  // stop after so many
  std::function<void(const std::string&)> report = {};  // gets what came of it, as JSON
  std::string findings = {};  // write each difference into this folder, as a C++ program
  std::function<bool()> stop = [] { return false; };  // asked between programs: end here
};

// Prints differences as they come and the coverage table at the end. Returns 0 when no program
// differed and, from 2,000 programs on, no cell of the table is empty; else 1.
int run(const FuzzOptions& options);

// The program of a seed as C++ that runs by itself: it prints what happens on stock, then on Overdrive.
std::string program_of(uint64_t seed);

}  // namespace overdrive::fuzz
