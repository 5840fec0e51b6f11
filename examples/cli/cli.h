// What the commands of `overdrive` share: how one is added, and what every one is asked. Owned by main();
// commands run on the main thread, one a process. Knows no command.
#pragma once

#include "bench/output_file.h"
#include "examples/harness/ending.h"

#include <CLI/CLI.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace overdrive::cli {

using bench::JsonFile;
using harness::interrupted;
using harness::kFine;
using harness::UsageError;

// What an option's value may be. CLI11's own name the largest double when they refuse, and take -1 for the
// largest whole number.
CLI::Validator above_zero();
CLI::Validator zero_or_above();

// An option that shows its default and whose value passes `check`.
template <typename Value>
void option(CLI::App& command, const std::string& name, Value& value, const std::string& what,
            const CLI::Validator& check) {
  command.add_option(name, value, what)->check(check)->capture_default_str();
}

// Where the results of a command go. Every command with results has these two options.
struct Output {
  std::string json;
  bool quiet = false;

  void add_to(CLI::App& command);
  // At once, so that the reader of a pipe does not wait.
  void print(const std::string& text) const;
};

// The parsed command line: CLI11's object, and the one action that it chose.
struct Program {
  CLI::App app{"Overdrive: a replacement autograd engine for LibTorch programs.", "overdrive"};
  // What stood behind "--": the arguments of another program, for the command that runs one.
  std::optional<std::vector<std::string>> after_dashes;
  std::function<int()> action;
  std::vector<std::string> arguments;  // ours, without the program's name

  // A command below `parent` whose --help ends with `example`; `run` gives the exit status. Without it the
  // command has commands below it.
  CLI::App* add(CLI::App& parent, const std::string& name, const std::string& what, const std::string& example,
                std::function<int()> run);
};

void add_env(Program& program);
void add_list(Program& program);
void add_train(Program& program);
void add_graph(Program& program);
void add_compare(Program& program);
void add_bench(Program& program);
void add_bench_faults(Program& program, CLI::App& parent);
std::vector<std::string> models_of_bench_faults();
void add_soak(Program& program);
void add_step(Program& program);
void add_replay(Program& program);
// Only where the fuzzer is built: it is a part of the tests.
void add_fuzz(Program& program);

}  // namespace overdrive::cli
