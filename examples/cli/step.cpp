// `overdrive step FILE`: what a step file holds, whether it has its writer's bits here, and how long a replay
// takes beside the eager call that was measured when the step was captured.
#include "bench/support/text.h"
#include "examples/cli/cli.h"
#include "replay/file/step_file.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <limits>

namespace overdrive::cli {

namespace {

struct StepArguments {
  std::string file;
  bool check = false;
  bool bench = false;
  int threads = 1;
  Output output;
};

// Of the fastest of many calls, in microseconds.
double best_time(overdrive::Step& step, const std::string& function, const std::vector<at::Tensor>& inputs) {
  constexpr int kLeastCalls = 20;
  constexpr std::chrono::milliseconds kTime(500);
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + kTime;
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kLeastCalls || Clock::now() < end; ++i) {
    const Clock::time_point start = Clock::now();
    step.call(function, inputs);
    best = std::min(best, std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  return best;
}

// "-" is not known. With a star: the first eager call alone, which is no measure.
std::string cell(const EagerCost& cost) {
  if (cost.calls == 0) return "-";
  return bench::format("%.1f%s", 1e6 * cost.seconds, cost.calls == 1 ? "*" : "");
}

// A line for each program. What was recorded is of the machine that captured the step.
void print_times(overdrive::Step& step, const Output& output) {
  const bench::TextTable table({{"program", -24},
                                {"operators", 9},
                                {"replay us", 10},
                                {"recorded eager us", 18},
                                {"ratio", 7},
                                {"recorded replay us", 19}});
  output.print(table.head());
  bool is_any_first = false;
  for (const std::string& function : step.functions()) {
    const auto inputs = step.recorded_inputs(function);
    const std::vector<double> replays = step.recorded_seconds(function);
    const std::vector<EagerCost> eager = step.recorded_eager_cost(function);
    const std::vector<size_t> operators = step.operator_counts(function);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const double here = best_time(step, function, inputs[i]);
      const std::string ratio =
          eager[i].calls > 1 ? bench::format("%.3f", here / (1e6 * eager[i].seconds)) : "-";
      is_any_first |= eager[i].calls == 1;
      output.print(table.row({bench::format("%s %zu", function.c_str(), i), std::to_string(operators[i]),
                              bench::format("%.1f", here), cell(eager[i]), ratio,
                              replays[i] > 0 ? bench::format("%.1f", 1e6 * replays[i]) : "-"}));
    }
  }
  if (is_any_first)
    output.print(bench::fitted(
        "* the first eager call, which is slower than those after it; capture the step with eager_calls = 10"));
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
  command->add_flag("--bench", arguments->bench,
                    "Time calls on the inputs that the file holds, beside the recorded eager call.");
  option(*command, "--threads", arguments->threads, "Threads inside one operation.", CLI::Range(1, 1024));
  command->add_flag("--quiet", arguments->output.quiet, "Print nothing but errors.");
}

}  // namespace overdrive::cli
