// The command-line program. Exit status: 0 fine, 1 a difference was found, 2 the call was wrong or a result
// could not be written, 130 stopped by Ctrl-C before the end.
#include "engine/install.h"
#include "examples/cli/cli.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string_view>

namespace overdrive::cli {

namespace {

// CLI11 takes what is `too_large` for the largest number that there is.
CLI::Validator number_that(bool (*fits)(double), const char* what, double too_large) {
  return CLI::Validator(
      [=](const std::string& text) -> std::string {
        double value = 0;
        if (!CLI::detail::lexical_cast(text, value) || !fits(value)) {
          return "\"" + text + "\" is not a number " + what;
        }
        return value < too_large ? "" : "\"" + text + "\" is too large";
      },
      "");
}

}  // namespace

CLI::Validator above_zero() {
  return number_that([](double value) { return value > 0; }, "above 0", 0x1p63);
}

CLI::Validator zero_or_above() {
  return number_that([](double value) { return value >= 0; }, "from 0 on", 0x1p64);
}

void Output::add_to(CLI::App& command) {
  command.add_option("--json", json, "Write the result to this file.");
  command.add_flag("--quiet", quiet, "Print nothing but errors.");
}

void Output::print(const std::string& text) const {
  if (quiet) return;
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

CLI::App* Program::add(CLI::App& parent, const std::string& name, const std::string& what,
                       const std::string& example, std::function<int()> run) {
  CLI::App* command = parent.add_subcommand(name, what);
  command->footer("Example: " + example);
  if (run) {
    command->callback([this, run = std::move(run)] { action = run; });
  } else {
    command->require_subcommand(1);
  }
  return command;
}

namespace {

// One line, whatever LibTorch has to say behind the first.
int complain(const std::string& what) {
  std::cerr << "overdrive: " << what.substr(0, what.find('\n')) << '\n';
  return harness::kWrongCall;
}

// CLI11 would say that a subcommand is missing, which is not what is wrong.
void check_command(CLI::App& app, const std::vector<std::string>& arguments, size_t at = 0,
                   const std::string& parents = "") {
  if (at >= arguments.size() || arguments[at].starts_with('-') || app.get_subcommands(nullptr).empty()) return;
  const std::string& name = arguments[at];
  const auto known = app.get_subcommands([&](const CLI::App* command) { return command->get_name() == name; });
  if (known.empty()) {
    throw UsageError("there is no command \"" + parents + name + "\" (see overdrive " + parents + "--help).");
  }
  check_command(*known[0], arguments, at + 1, parents + name + " ");
}

void take_arguments(Program& program, int argc, char** argv) {
  const auto dashes = std::find(argv + 1, argv + argc, std::string_view("--"));
  if (dashes != argv + argc) program.after_dashes.emplace(dashes + 1, argv + argc);
  program.arguments.assign(argv + 1, dashes);
  if (program.arguments.empty() || program.arguments[0] != "help") return;
  program.arguments.erase(program.arguments.begin());
  program.arguments.emplace_back("--help");
}

// The help of every command: tools/make_man.py makes the man page of it.
void print_every_help(const CLI::App& app, const std::string& name, const std::string& parents = "") {
  std::cout << "# " << name << '\n' << app.help(parents) << '\n';
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    print_every_help(*command, name + " " + command->get_name(), name);
  }
}

void add_commands(Program& program) {
  program.app.require_subcommand(1);
  program.app.footer(
      "Example: overdrive compare digits --steps 50\nExit status: 0 fine, 1 a difference was found, 2 the call "
      "was wrong or a\nresult could not be written, 130 stopped by Ctrl-C before the end.");
  program.app.set_version_flag(
      "--version", "overdrive " OVERDRIVE_VERSION ", built for LibTorch " + engine::built_for_torch());
  program.add(program.app, "help",
              "Tell about a command: overdrive help COMMAND, or about all: overdrive help --all.",
              "overdrive help bench engine", [] { return kFine; });
  add_env(program);
  add_list(program);
  add_train(program);
  add_graph(program);
  add_compare(program);
  add_bench(program);
  add_soak(program);
  add_step(program);
  add_replay(program);
#ifdef OVERDRIVE_HAS_FUZZER
  add_fuzz(program);
#endif
}

int parse_and_run(Program& program, int argc, char** argv) {
  try {
    take_arguments(program, argc, argv);
    if (program.arguments == std::vector<std::string>{"--all", "--help"}) {
      print_every_help(program.app, program.app.get_name());
      return kFine;
    }
    check_command(program.app, program.arguments);
    auto reversed = program.arguments;  // as CLI11 wants them
    std::reverse(reversed.begin(), reversed.end());
    program.app.parse(std::move(reversed));
    return program.action();
  } catch (const CLI::Success& help) {
    return program.app.exit(help);
  } catch (const CLI::ParseError& error) {
    return complain(error.what() + std::string(" (see overdrive --help)"));
  } catch (const c10::Error& error) {
    return complain(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return complain(error.what());
  }
}

int run(int argc, char** argv) {
  Program program;
  add_commands(program);
  const int status = parse_and_run(program, argc, argv);
  // What was printed is a result, too: a full disk is not silence.
  std::cout.flush();
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout) return status;
  return complain("cannot write to the standard output: is the disk full?");
}

}  // namespace

}  // namespace overdrive::cli

int main(int argc, char** argv) { return overdrive::cli::run(argc, argv); }
