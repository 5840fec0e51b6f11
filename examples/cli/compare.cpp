// `overdrive compare NAME`: one model, two engines, one seed; ends with a table. Status 1 when a bit differs.
#include "bench/environment.h"
#include "engine/engine.h"
#include "examples/cli/cli.h"
#include "examples/cli/progress.h"
#include "examples/cli/training_options.h"
#include "examples/trainers/comparison.h"

#include <ATen/Parallel.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

namespace overdrive::cli {

namespace {

using trainers::Comparison;
using trainers::TrainerInfo;

struct CompareArguments : TrainingOptions {
  bool all = false;
  int64_t block = 10;
};

std::vector<const TrainerInfo*> chosen(const CompareArguments& arguments) {
  if (arguments.all == !arguments.name.empty()) throw UsageError("compare needs either a NAME or --all.");
  if (!arguments.all) return find_or_complain(arguments.name);
  std::vector<const TrainerInfo*> every;
  for (const TrainerInfo& info : trainers::trainers()) every.push_back(&info);
  return every;
}

std::string milliseconds(const std::vector<double>& seconds) {
  if (seconds.empty()) return "-";
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f", bench::median(seconds) * 1e3);
  return text;
}

std::string with_interval(const bench::Interval& ratio) {
  char text[48];
  std::snprintf(text, sizeof(text), "%.3f [%.3f, %.3f]", ratio.middle, ratio.lo, ratio.hi);
  return ratio.middle > 0 ? text : "-";
}

std::string kibibytes(int64_t bytes) { return bytes < 0 ? "-" : std::to_string((bytes + 512) / 1024); }

std::string bits(const Comparison& result) {
  if (!result.difference) return "equal after each of " + std::to_string(result.steps) + " steps";
  const auto& d = *result.difference;
  char text[256];
  std::snprintf(text, sizeof(text), "DIFFER first at step %lld, %s[%lld]: stock %.9g, overdrive %.9g",
                static_cast<long long>(d.step), d.parameter.c_str(), static_cast<long long>(d.element), d.stock,
                d.overdrive);
  return text;
}

void print(const Comparison& result) {
  auto row = [](const char* what, const std::string& stock, const std::string& ours, const std::string& ratio) {
    std::printf("  %-26s %14s %14s   %s\n", what, stock.c_str(), ours.c_str(), ratio.c_str());
  };
  auto number = [](double value) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.4f", value);
    return std::string(text);
  };
  const auto& [stock, ours] = std::tie(result.stock, result.overdrive);
  std::printf("\n%s: %s (seed %llu)\n", result.trainer->name.c_str(), result.trainer->what.c_str(),
              static_cast<unsigned long long>(result.seed));
  row("", "stock", "overdrive", "ratio [95 %]");
  row(result.trainer->quality.c_str(), number(stock.quality), number(ours.quality), "");
  row("loss at the end", number(stock.losses.back()), number(ours.losses.back()), "");
  row("step, ms", milliseconds(stock.step_seconds), milliseconds(ours.step_seconds),
      with_interval(result.step_ratio));
  row("backward in it, ms", milliseconds(stock.backward_seconds), milliseconds(ours.backward_seconds),
      with_interval(result.backward_ratio));
  row("peak of tensors, KiB", kibibytes(stock.peak_tensor_bytes), kibibytes(ours.peak_tensor_bytes), "");
  row("peak of the rest, KiB", kibibytes(stock.peak_heap_bytes), kibibytes(ours.peak_heap_bytes), "");
  std::printf("  %.0f nodes a backward, %.1f backwards a step\n", result.nodes_per_backward,
              result.backwards_per_step);
  std::printf("  bits: %s\n", bits(result).c_str());
}

Comparison compare_one(const TrainerInfo& info, const CompareArguments& arguments) {
  const int64_t steps = arguments.steps > 0 ? arguments.steps : info.default_steps;
  Progress progress(info.name, steps, arguments.quiet);
  trainers::CompareOptions options{
      .steps = steps, .seed = arguments.seed, .block = arguments.block, .progress = {}};
  options.progress = [&](int64_t done, double loss) {
    progress.show(done, loss);
    return !interrupted();
  };
  return trainers::compare(info, options);
}

int compare(const CompareArguments& arguments) {
  const auto selection = chosen(arguments);
  JsonFile file(arguments.json);
  at::set_num_threads(arguments.threads);
  reset_stats();
  stop_on_interrupt();
  bool all_equal = true;
  nlohmann::json results = nlohmann::json::array();
  for (const TrainerInfo* info : selection) {
    const Comparison result = compare_one(*info, arguments);
    all_equal &= !result.difference;
    if (!arguments.quiet) print(result);
    results.push_back(to_json(result));
    if (interrupted()) break;
  }
  file.write({{"comparisons", results},
              {"bits_equal", all_equal},
              {"environment", bench::environment()},
              {"engine", nlohmann::json::parse(engine::stats_json())}});
  return all_equal ? kFine : kDifferenceFound;
}

}  // namespace

void add_compare(Program& program) {
  auto arguments = std::make_shared<CompareArguments>();
  CLI::App* command = program.add("compare", "Train a model under both engines and compare every bit.",
                                  "overdrive compare digits --steps 100 --json digits.json",
                                  [arguments] { return compare(*arguments); });
  add_training_options(*command, *arguments);
  command->add_flag("--all", arguments->all, "Every trainer.");
  command
      ->add_option("--block", arguments->block, "Steps that one engine runs before the other takes its turn.")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
}

}  // namespace overdrive::cli
