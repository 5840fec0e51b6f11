// What the commands of `overdrive` share: how one is added, how it ends, where its JSON goes.
// Owned by main(); commands run on the main thread, one a process. Knows no command.
#pragma once

#include "bench/output_file.h"

#include <CLI/CLI.hpp>

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace overdrive::cli {

constexpr int kFine = 0;
constexpr int kDifferenceFound = 1;
constexpr int kWrongCall = 2;

// The user asked for something that cannot be done: one line, exit status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What an option's value may be. CLI11's own name the largest double when they refuse, and take -1 for the
// largest whole number.
CLI::Validator above_zero();
CLI::Validator zero_or_above();

// The parsed command line: CLI11's object, and the one action that it chose.
struct Program {
  CLI::App app{"Overdrive: a replacement autograd engine for LibTorch programs.", "overdrive"};
  // What stood behind "--": the arguments of another program, for the command that runs one.
  std::optional<std::vector<std::string>> after_dashes;
  std::function<int()> action;
  std::vector<std::string> arguments;  // ours, without the program's name

  // A subcommand whose --help ends with `example`; `run` gives the exit status.
  CLI::App* add(const std::string& name, const std::string& what, const std::string& example,
                std::function<int()> run);
  // The same below another command.
  CLI::App* add_to(CLI::App& parent, const std::string& name, const std::string& what,
                   const std::string& example, std::function<int()> run);
};

void add_env(Program& program);
void add_list(Program& program);
void add_train(Program& program);
void add_compare(Program& program);
void add_bench(Program& program);
void add_soak(Program& program);
// Only where the fuzzer is built: it is a part of the tests.
void add_fuzz(Program& program);

// A JSON file that appears under its name only when it is complete. Made before the work begins, so that
// a wrong path costs nothing. An empty path writes nothing.
class JsonFile {
 public:
  explicit JsonFile(std::string path);
  void write(const nlohmann::json& content) const;

 private:
  const bench::OutputFile file_;
};

}  // namespace overdrive::cli
