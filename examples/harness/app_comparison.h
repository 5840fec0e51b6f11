// Any LibTorch program, run as it is and with the preload library, and what came of it. Runs on the main
// thread; Ctrl-C reaches the program as well. Reads no command line.
#pragma once

#include "bench/support/program_run.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <string>
#include <vector>

namespace overdrive::harness {

struct OutputDifference {
  int64_t line = 0;
  std::string stock, overdrive;
};

class AppComparison {
 public:
  // `command`: the program and its arguments. What the regular expressions `ignore` match in its output does
  // not count. Throws UsageError when one is not a regular expression.
  AppComparison(std::vector<std::string> command, const std::vector<std::string>& ignore);

  // Runs of each kind, in turns, until Ctrl-C. Throws UsageError when the program cannot be compared.
  void run(int runs);

  bool has_runs() const { return !ours_.empty(); }
  bool differs() const { return difference_ || status_differs_; }
  // The program printed something that counts.
  bool compared_output() const { return compared_output_; }
  std::string text() const;
  nlohmann::json to_json() const;

 private:
  void add(bench::ProgramRun stock, bench::ProgramRun ours);
  void check_that_it_ran(const bench::ProgramRun& stock, const bench::ProgramRun& ours);
  std::string counted(std::string text) const;

  const std::vector<std::string> command_;
  std::vector<std::regex> ignored_;
  std::vector<bench::ProgramRun> stock_, ours_;
  nlohmann::json report_, held_off_;
  std::optional<OutputDifference> difference_;
  bool status_differs_ = false, compared_output_ = false;
};

// The liboverdrive.so that this process uses.
std::string library_path();

}  // namespace overdrive::harness
