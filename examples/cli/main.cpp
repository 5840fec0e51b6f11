// The command-line program. Exit status: 0 fine, 1 a difference was found, 2 the call was wrong.
#include "examples/cli/cli.h"

#include <c10/util/Exception.h>

#include <algorithm>
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

CLI::App* Program::add(const std::string& name, const std::string& what, const std::string& example,
                       std::function<int()> run) {
  return add_to(app, name, what, example, std::move(run));
}

CLI::App* Program::add_to(CLI::App& parent, const std::string& name, const std::string& what,
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
  return kWrongCall;
}

// CLI11 would say that a subcommand is missing, which is not what is wrong.
void check_command(CLI::App& app, int argc, char** argv, const std::string& parents = "") {
  if (argc < 2 || argv[1][0] == '-' || app.get_subcommands(nullptr).empty()) return;
  const std::string name = argv[1];
  const auto known = app.get_subcommands([&](const CLI::App* command) { return command->get_name() == name; });
  if (known.empty()) {
    throw UsageError("there is no command \"" + parents + name + "\" (see overdrive " + parents + "--help).");
  }
  check_command(*known[0], argc - 1, argv + 1, parents + name + " ");
}

// Gives the number of arguments that are ours.
int take_arguments_after_dashes(Program& program, int argc, char** argv) {
  const auto dashes = std::find(argv, argv + argc, std::string_view("--"));
  if (dashes == argv + argc) return argc;
  program.after_dashes.emplace(dashes + 1, argv + argc);
  return static_cast<int>(dashes - argv);
}

int run(int argc, char** argv) {
  Program program;
  program.app.require_subcommand(1);
  program.app.footer(
      "Example: overdrive compare digits --steps 50\nExit status: 0 fine, 1 a difference was found, 2 the call "
      "was wrong.");
  add_env(program);
  add_list(program);
  add_train(program);
  add_compare(program);
  add_bench(program);
  add_soak(program);
#ifdef OVERDRIVE_HAS_FUZZER
  add_fuzz(program);
#endif
  try {
    argc = take_arguments_after_dashes(program, argc, argv);
    program.arguments.assign(argv + 1, argv + argc);
    check_command(program.app, argc, argv);
    program.app.parse(argc, argv);
    return program.action();
  } catch (const CLI::Success& help) {
    return program.app.exit(help);
  } catch (const CLI::ParseError& error) {
    return complain(error.what() + std::string(" (see overdrive --help)"));
  } catch (const UsageError& error) {
    return complain(error.what());
  } catch (const c10::Error& error) {
    return complain(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return complain(error.what());
  }
}

}  // namespace

}  // namespace overdrive::cli

int main(int argc, char** argv) { return overdrive::cli::run(argc, argv); }
