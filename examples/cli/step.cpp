// `overdrive step FILE`: what a step file holds, whether it has its writer's bits here, and how long a replay
// takes.
#include "bench/support/text.h"
#include "examples/cli/cli.h"
#include "replay/file/step_file.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>

namespace overdrive::cli {

namespace {

struct StepArguments {
  std::string file;
  bool check = false;
  bool bench = false;
  int threads = 1;
  Output output;
};

// Of one replay, in microseconds.
double median_time(overdrive::Step& step, const std::string& function, const std::vector<at::Tensor>& inputs) {
  std::vector<double> times;
  for (int i = 0; i < 200; ++i) {
    const auto start = std::chrono::steady_clock::now();
    step.call(function, inputs);
    times.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

void print_times(overdrive::Step& step, const Output& output) {
  for (const std::string& function : step.functions()) {
    const auto inputs = step.recorded_inputs(function);
    const std::vector<double> there = step.recorded_seconds(function);
    for (size_t i = 0; i < inputs.size(); ++i) {
      std::string text = bench::format("%s, program %zu: %.1f us a call", function.c_str(), i,
                                       median_time(step, function, inputs[i]));
      if (there[i] > 0) text += bench::format("; %.1f us a replay where it was captured", 1e6 * there[i]);
      output.print(text + "\n");
    }
  }
}

int look_at(const StepArguments& arguments) {
  at::set_num_threads(arguments.threads);
  overdrive::Step step = load_step(arguments.file, {.check = false, .accept_other_bits = true});
  arguments.output.print(step.describe());
  if (arguments.check) {
    try {
      step = load_step(arguments.file);
    } catch (const c10::Error& error) {
      arguments.output.print(error.what_without_backtrace() + std::string("\n"));
      return harness::kDifferenceFound;
    }
    arguments.output.print("the calls of the file have the bits that they had where it was written\n");
  }
  if (arguments.bench) print_times(step, arguments.output);
  return kFine;
}

}  // namespace

void add_step(Program& program) {
  auto arguments = std::make_shared<StepArguments>();
  CLI::App* command =
      program.add(program.app, "step", "Show what a step file holds.",
                  "overdrive step train.od --check --bench", [arguments] { return look_at(*arguments); });
  command->add_option("file", arguments->file, "A file that save() of a captured step wrote.")
      ->required()
      ->type_name("FILE");
  command->add_flag("--check", arguments->check, "Make the calls that the file holds, and compare their bits.");
  command->add_flag("--bench", arguments->bench, "Time calls on the inputs that the file holds.");
  option(*command, "--threads", arguments->threads, "Threads inside one operation.", CLI::Range(1, 1024));
  command->add_flag("--quiet", arguments->output.quiet, "Print nothing but errors.");
}

}  // namespace overdrive::cli
