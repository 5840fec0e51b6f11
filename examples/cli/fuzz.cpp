// `overdrive fuzz`: seeded random graphs on both engines, compared in everything a program can observe.
#include "test/parity/fuzz/fuzz.h"
#include "examples/cli/cli.h"

#include <ATen/Parallel.h>

namespace overdrive::cli {

namespace {

int run_fuzzer(fuzz::FuzzOptions options, const std::string& json) {
  const bench::OutputFile file(json);  // before the work
  at::set_num_threads(1);
  harness::stop_on_interrupt();
  options.stop = interrupted;
  options.report = [&](const std::string& report) { file.write(report); };
  return harness::ending(fuzz::run(options) != 0);
}

}  // namespace

void add_fuzz(Program& program) {
  auto options = std::make_shared<fuzz::FuzzOptions>();
  auto print = std::make_shared<bool>(false);
  auto json = std::make_shared<std::string>();
  CLI::App* command =
      program.add(program.app, "fuzz", "Run seeded random graphs on both engines and compare everything.",
                  "overdrive fuzz --programs 10000 --seed 7", [options, print, json] {
                    if (!*print) return run_fuzzer(*options, *json);
                    Output().print(fuzz::program_of(options->seed));
                    return kFine;
                  });
  option(*command, "--programs", options->programs, "How many programs.", above_zero());
  option(*command, "--seed", options->seed, "Seed of the first program.", zero_or_above());
  command->add_option("--minutes", options->minutes, "Go on for so long instead.")->check(above_zero());
  option(*command, "--max-differences", options->max_differences, "Stop after so many differences.",
         above_zero());
  command->add_flag("--shrink,!--no-shrink", options->shrink,
                    "Make a differing program small before printing it.");
  command->add_option("--json", *json, "Write a report to this file.");
  command
      ->add_option("--findings", options->findings, "Write each difference into this folder as a C++ program.")
      ->check(CLI::ExistingDirectory);
  command->add_flag("--print", *print, "Print the program of --seed as C++ and run nothing.");
  command->add_flag("--quiet", options->quiet, "Print differences only.");
}

}  // namespace overdrive::cli
