// `overdrive compare NAME`: one model, two engines, one seed; ends with a table. Status 1 when a bit differs.
#include "bench/benchmark.h"
#include "bench/environment.h"
#include "engine/engine.h"
#include "examples/cli/cli.h"
#include "examples/cli/training_options.h"
#include "examples/harness/app_comparison.h"
#include "examples/harness/comparison.h"
#include "examples/harness/progress.h"
#include "examples/trainers/trainer.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace overdrive::cli {

namespace {

using harness::Comparison;
using trainers::TrainerInfo;

constexpr int64_t kQuickSteps = 150;
// Long enough to warm the caches, unless that leaves too few turns for an interval.
constexpr int64_t kStepsOfATurn = 10;
constexpr int64_t kFewestTurns = 13;

struct CompareArguments : TrainingOptions {
  bool all = false;
  bool quick = false;
  bool capture = false;
  int64_t block = 0;  // 0: what suits the number of steps
  std::string html;
  std::string torchscript;
  std::vector<std::string> inputs;
  std::string app;
  int runs = 3;  // of the app, of each kind
  std::vector<std::string> ignore;
};

void check_what(const CompareArguments& arguments) {
  const int wanted = int{arguments.all} + int{!arguments.name.empty()} + int{!arguments.torchscript.empty()} +
                     int{!arguments.app.empty()};
  if (wanted != 1) throw UsageError("compare needs either a NAME or --all, or one of --torchscript and --app.");
  if (arguments.torchscript.empty() != arguments.inputs.empty())
    throw UsageError("--torchscript and --input belong together.");
  if (arguments.app.empty()) return;
  if (!arguments.html.empty()) throw UsageError("--html draws trainings; a comparison of programs has none.");
}

// `own` holds the trainer when it is not one of ours.
std::vector<const TrainerInfo*> chosen(const CompareArguments& arguments, TrainerInfo& own) {
  if (!arguments.name.empty()) return find_or_complain(arguments.name);
  if (!arguments.torchscript.empty()) {
    std::vector<trainers::InputShape> shapes;
    for (const std::string& input : arguments.inputs) shapes.push_back(trainers::parse_input_shape(input));
    own = trainers::torchscript(arguments.torchscript, shapes);
    return {&own};
  }
  std::vector<const TrainerInfo*> every;
  for (const TrainerInfo& info : trainers::trainers()) every.push_back(&info);
  return every;
}

Comparison compare_one(const TrainerInfo& info, const CompareArguments& arguments) {
  harness::CompareOptions options{
      .steps = arguments.steps > 0 ? arguments.steps : info.default_steps,
      .setup = arguments.setup,
      .block = arguments.block,
      .capture = arguments.capture,
  };
  if (arguments.quick) options.steps = std::min(options.steps, kQuickSteps);
  if (options.block == 0) options.block = std::clamp<int64_t>(options.steps / kFewestTurns, 1, kStepsOfATurn);
  harness::Progress progress(info.name, options.steps, arguments.output.quiet);
  options.progress = [&](int64_t done, double loss) {
    progress.show(done, loss);
    return !interrupted();
  };
  return harness::compare(info, options);
}

// Both engines ran with the same memory settings, which are the process's; these have a gain of their own.
nlohmann::json tuning_alone(const TrainerInfo& trainer) {
  const bool known = !trainers::find_trainers(trainer.name).empty() && !trainer.distributed;
  nlohmann::json row;
  if (!known || stats().keep_memory_bytes == 0) return row;
  harness::run_until_interrupt([&] {
    row = bench::measure_page_faults(trainer.name, 20, {"stock", "tuned_stock"}, harness::check_interrupt);
  });
  return row;
}

nlohmann::json document_of(const std::vector<Comparison>& results) {
  nlohmann::json list = nlohmann::json::array();
  for (const Comparison& result : results) {
    list.push_back(to_json(result));
    list.back()["tuning_alone"] = interrupted() ? nlohmann::json() : tuning_alone(*result.trainer);
  }
  return {{"comparisons", list},
          {"bits_equal",
           std::none_of(results.begin(), results.end(), [](auto& r) { return r.difference.has_value(); })},
          {"stopped", interrupted()},
          {"environment", bench::environment()},
          {"engine", nlohmann::json::parse(engine::stats_json())}};
}

int compare(const CompareArguments& arguments) {
  TrainerInfo own;
  const auto selection = chosen(arguments, own);
  const JsonFile json(arguments.output.json);
  const bench::OutputFile html(arguments.html);
  at::set_num_threads(arguments.threads);
  reset_stats();
  harness::stop_on_interrupt();
  std::vector<Comparison> results;
  for (const TrainerInfo* info : selection) {
    results.push_back(compare_one(*info, arguments));
    arguments.output.print(table_of(results.back()));
    if (interrupted()) break;
  }
  const nlohmann::json document = document_of(results);
  json.write(document);
  if (!arguments.html.empty()) html.write(harness::page_of(document));
  if (results.size() > 1) arguments.output.print(summary_of(results));
  if (!arguments.html.empty()) {
    arguments.output.print("\nThe comparison as a page: " + std::filesystem::absolute(arguments.html).string() +
                           "\n");
  }
  return harness::ending(!document["bits_equal"].get<bool>());
}

int compare_app(const CompareArguments& arguments, const std::vector<std::string>& app_arguments) {
  const JsonFile json(arguments.output.json);
  std::vector<std::string> command{arguments.app};
  command.insert(command.end(), app_arguments.begin(), app_arguments.end());
  harness::stop_on_interrupt();
  harness::AppComparison comparison(std::move(command), arguments.ignore);
  comparison.run(arguments.runs);
  if (comparison.has_runs()) arguments.output.print(comparison.text());
  json.write(comparison.to_json());
  const int status = harness::ending(comparison.differs());
  if (status != kFine || comparison.compared_output()) return status;
  throw UsageError("\"" + arguments.app + "\" printed nothing that counts, so no result of it was compared.");
}

void add_own_model_options(CLI::App& command, CompareArguments& arguments) {
  command.add_option("--torchscript", arguments.torchscript, "A TorchScript module instead of a trainer.")
      ->check(CLI::ExistingFile);
  command
      .add_option("--input", arguments.inputs,
                  "Its inputs' shapes: 8x3x32x32, or 16x128:65 for whole numbers below 65.")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      .add_option("--app", arguments.app,
                  "Any LibTorch program, run as it is and with the preload library; its arguments behind --.")
      ->option_text("PROGRAM");
  option(command, "--runs", arguments.runs, "Runs of the program, of each kind.", CLI::Range(1, 1000));
  command
      .add_option("--ignore", arguments.ignore,
                  "What this regular expression matches in the program's output does not count.")
      ->allow_extra_args(false);
}

}  // namespace

void add_compare(Program& program) {
  auto arguments = std::make_shared<CompareArguments>();
  CLI::App* command =
      program.add(program.app, "compare", "Train a model under both engines and compare every bit.",
                  "overdrive compare digits --steps 100 --html digits.html", [arguments, &program] {
                    check_what(*arguments);
                    if (!arguments->app.empty()) {
                      return compare_app(*arguments, program.after_dashes.value_or(std::vector<std::string>{}));
                    }
                    if (program.after_dashes) throw UsageError("-- belongs to --app.");
                    return compare(*arguments);
                  });
  add_training_options(*command, *arguments);
  command->add_flag("--all", arguments->all, "Every trainer, and a table of all at the end.");
  command->add_flag("--quick", arguments->quick, "A short look: at most 150 steps a model.");
  command->add_flag("--capture", arguments->capture, "A third copy, with captured steps.");
  command->add_option("--html", arguments->html, "Write the comparison to this file, as a page with charts.");
  command
      ->add_option("--block", arguments->block, "Steps that one engine runs before the other takes its turn.")
      ->check(CLI::Range(1, 10'000))
      ->default_str("10, fewer in a short training");
  add_own_model_options(*command, *arguments);
}

}  // namespace overdrive::cli
