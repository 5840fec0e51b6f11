// `overdrive train NAME`: trains a model on one engine, keeps checkpoints, and tells how good it became.
#include "bench/engine_switch.h"
#include "bench/environment.h"
#include "bench/support/text.h"
#include "examples/cli/cli.h"
#include "examples/cli/training_options.h"
#include "examples/harness/comparison.h"
#include "examples/harness/launch.h"
#include "examples/harness/progress.h"
#include "examples/trainers/checkpoint_file.h"
#include "inspect/inspect.h"

#include <ATen/Parallel.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace overdrive::cli {

namespace {

using trainers::Trainer;
using trainers::TrainerInfo;

constexpr int64_t kStepsBetweenCheckpoints = 100;

struct TrainArguments : TrainingOptions {
  std::string engine = "overdrive";
  std::string save, resume;
  std::string save_tensors = "plain";
  std::string checkpoint;
  std::string trace;
  std::string memory;
  std::string profile;
  int world = 1;
  int rank = -1;  // 0 and above: one of the processes that `--world` started
  uint16_t port = 0;
};

std::string checkpoint_path(const std::string& folder, const TrainerInfo& info) {
  return (std::filesystem::path(folder) / (info.name + ".pt")).string();
}

void make_folder(const std::string& folder) {
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) throw UsageError("cannot make the folder \"" + folder + "\": " + error.message() + ".");
}

// Ctrl-C stops a backward only where nobody keeps the step: a checkpoint holds whole steps, and processes that
// train together wait for each other.
std::unique_ptr<StopScope> stoppable(const TrainArguments& arguments) {
  if (!arguments.save.empty() || arguments.rank >= 0 || !installed()) return nullptr;
  return std::make_unique<StopScope>(harness::interrupt_token());
}

// One step, or nothing when Ctrl-C stopped its backward.
std::optional<double> step(Trainer& trainer, trainers::Meter& meter, const TrainArguments& arguments,
                           const hooks::HooksPtr& packer) {
  const auto stops = stoppable(arguments);
  std::optional<hooks::ScopedHooks> scope;
  if (packer != nullptr) scope.emplace(packer);
  try {
    return trainer.step(meter);
  } catch (const Cancelled&) {
    return std::nullopt;
  }
}

// Steps up to `steps`; gives the losses of those that were done here.
std::vector<double> run_steps(const TrainerInfo& info, Trainer& trainer, int64_t done, int64_t steps,
                              const TrainArguments& arguments) {
  harness::Progress progress(info.name, steps, arguments.output.quiet, done);
  trainers::Meter meter;
  const hooks::HooksPtr packer = packer_named(arguments.save_tensors);
  std::vector<double> losses;
  std::optional<bench::OutputFile> page;
  const bool draws_time = !arguments.profile.empty();
  if (draws_time || !arguments.memory.empty()) page.emplace(draws_time ? arguments.profile : arguments.memory);
  for (bool stop = done == steps; !stop;) {
    std::optional<double> loss;
    const auto take = [&] { loss = step(trainer, meter, arguments, packer); };
    if (page.has_value() && done + 1 == steps) {  // the first steps allocate for all
      page->write(draws_time ? to_html(profile(take), info.name) : to_html(memory_timeline(take), info.name));
    } else {
      take();
    }
    if (!loss.has_value()) break;
    losses.push_back(*loss);
    progress.show(++done, losses.back());
    stop = trainer.all_stop(done == steps || interrupted());
    if (!arguments.save.empty() && (stop || done % kStepsBetweenCheckpoints == 0)) {
      save_checkpoint(checkpoint_path(arguments.save, info), info, trainer, done);
    }
  }
  return losses;
}

void report(const TrainerInfo& info, const TrainArguments& arguments, int64_t done, double quality,
            Trainer& trainer) {
  const std::string epilogue = trainer.epilogue();
  arguments.output.print(bench::format("%s: %s %.4f after %lld steps on %s\n", info.name.c_str(),
                                       info.quality.c_str(), quality, static_cast<long long>(done),
                                       arguments.engine.c_str()) +
                         (epilogue.empty() ? "" : epilogue + "\n"));
}

void report_stop(const TrainerInfo& info, const TrainArguments& arguments, int64_t done) {
  if (arguments.rank > 0) return;
  const std::string kept = arguments.save.empty()
                               ? "nothing was kept, for want of --save"
                               : "the checkpoint " + checkpoint_path(arguments.save, info) + " has them";
  std::fprintf(stderr, "overdrive: stopped after %lld steps; %s.\n", static_cast<long long>(done),
               kept.c_str());
}

nlohmann::json train_one(const TrainerInfo& info, const TrainArguments& arguments) {
  const auto trainer = make_trainer(info, arguments.setup);
  int64_t done = 0;
  if (!arguments.resume.empty())
    done = load_checkpoint(checkpoint_path(arguments.resume, info), info, *trainer);
  // A folder that cannot be written to costs nothing so.
  if (!arguments.save.empty()) const bench::OutputFile trial(checkpoint_path(arguments.save, info));
  const int64_t steps = arguments.steps > 0 ? arguments.steps : info.default_steps;
  if (done > steps) {
    throw UsageError("the checkpoint of " + info.name + " has done " + std::to_string(done) +
                     " steps already, " + std::to_string(steps) + " were asked for.");
  }
  const auto losses = run_steps(info, *trainer, done, steps, arguments);
  done += static_cast<int64_t>(losses.size());
  const bool stopped = done < steps;
  const auto digest = trainers::digest_of(*trainer);
  const double quality = trainer->evaluate();
  if (!arguments.output.quiet) report(info, arguments, done, quality, *trainer);
  if (stopped) report_stop(info, arguments, done);
  nlohmann::json result = {{"name", info.name},
                           {"engine", arguments.engine},
                           {"save_tensors", arguments.save_tensors},
                           {"steps", done},
                           {"seed", arguments.setup.seed},
                           {"quality", info.quality},
                           {"quality_value", quality},
                           {"losses", losses},
                           {"parameters_digest", digest.parameters},
                           {"gradients_digest", digest.gradients},
                           {"stopped", stopped}};
  if (arguments.setup.checkpointing && !stopped) {
    result["checkpoint"] = harness::name_of(*arguments.setup.checkpointing);
    result["memory"] = harness::checkpoint_table(info, arguments.setup);
    arguments.output.print(harness::text_of_checkpoint_table(result["memory"]));
  }
  return result;
}

void use_checkpointing(TrainArguments& arguments, const std::vector<const TrainerInfo*>& selection) {
  if (arguments.checkpoint.empty()) return;
  for (const TrainerInfo* info : selection) {
    if (!info->checkpointable)
      throw UsageError("--checkpoint is for models that are a chain of layers: transformer.");
  }
  if (!arguments.setup.device.is_cpu())
    throw UsageError("--checkpoint weighs tensors on the CPU; leave --device out.");
  arguments.setup.checkpointing = harness::parse_checkpointing(arguments.checkpoint);
}

void check_packer(const TrainArguments& arguments) {
  if (arguments.save_tensors != "plain" && arguments.engine != "overdrive")
    throw UsageError("--save-tensors " + arguments.save_tensors +
                     " is for --engine overdrive: stock has no hooks in C++.");
}

void check_trace(const TrainArguments& arguments) {
  if (arguments.trace.empty()) return;
  if (arguments.engine != "overdrive")
    throw UsageError("--trace is for --engine overdrive: stock shows nothing of its backwards.");
  if (arguments.world > 1 && arguments.trace.find("%p") == std::string::npos)
    throw UsageError("several processes would write one file; put %p, the number of a process, into --trace.");
}

void check_page(const std::string& name, const std::string& page, const TrainArguments& arguments,
                const std::vector<const TrainerInfo*>& selection) {
  if (page.empty()) return;
  if (arguments.engine != "overdrive")
    throw UsageError(name + " is for --engine overdrive: stock shows nothing of its backwards.");
  if (arguments.world > 1 || selection.size() != 1)
    throw UsageError(name + " draws the page of one trainer in one process.");
}

void check_world(const TrainArguments& arguments, const std::vector<const TrainerInfo*>& selection) {
  if (arguments.world == 1) return;
  if (selection.size() != 1 || !selection[0]->distributed)
    throw UsageError("--world is for trainers that several processes can share: ddp.");
}

int train(TrainArguments arguments) {
  if (arguments.name.empty()) throw UsageError("train needs a NAME; `overdrive list` names the trainers.");
  const auto selection = find_or_complain(arguments.name);
  check_packer(arguments);
  check_trace(arguments);
  check_page("--memory", arguments.memory, arguments, selection);
  check_page("--profile", arguments.profile, arguments, selection);
  if (!arguments.memory.empty() && !arguments.profile.empty())
    throw UsageError("--memory and --profile measure the same step; take one of them.");
  check_world(arguments, selection);
  use_checkpointing(arguments, selection);
  make_folder(arguments.save);
  const JsonFile file(arguments.output.json);
  harness::stop_on_interrupt();
  if (arguments.rank >= 0) {
    harness::end_with_parent();
    arguments.setup.world = {.rank = arguments.rank, .size = arguments.world, .port = arguments.port};
  }
  at::set_num_threads(arguments.threads);
  const bench::UseEngine engine(bench::parse_engine(arguments.engine));
  std::optional<Trace> trace;
  if (!arguments.trace.empty()) trace.emplace(arguments.trace);
  nlohmann::json results = nlohmann::json::array();
  for (const TrainerInfo* info : selection) {
    if (!interrupted()) results.push_back(train_one(*info, arguments));
  }
  if (trace.has_value()) trace->close();
  file.write({{"trainings", results}, {"environment", bench::environment()}});
  return kFine;
}

}  // namespace

void add_train(Program& program) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App* command =
      program.add(program.app, "train", "Train a model on one engine.",
                  "overdrive train lstm --engine stock --steps 200 --save checkpoints", [arguments, &program] {
                    const bool launches = arguments->world > 1 && arguments->rank < 0;
                    if (!launches) return train(*arguments);
                    check_world(*arguments, find_or_complain(arguments->name));
                    return harness::launch(program.arguments, arguments->world);
                  });
  add_training_options(*command, *arguments);
  option(*command, "--engine", arguments->engine, "Who runs the backwards.",
         CLI::IsMember({"stock", "overdrive"}));
  command
      ->add_option("--save-tensors", arguments->save_tensors,
                   "How the tensors that a forward saves wait for the backward.")
      ->check(CLI::IsMember(packer_names()))
      ->capture_default_str();
  command->add_option("--save", arguments->save, "Keep a checkpoint NAME.pt in this folder.");
  command->add_option("--resume", arguments->resume, "Go on from the checkpoint NAME.pt in this folder.")
      ->check(CLI::ExistingDirectory);
  command->add_option("--checkpoint", arguments->checkpoint,
                      "Recompute the layers in the backward, sqrt or revolve:K, and show what it saves "
                      "(transformer).");
  command->add_option(
      "--memory", arguments->memory,
      "Draw the CPU memory of the last step into this page: its course, the peak, and its owners.");
  command->add_option("--profile", arguments->profile,
                      "Draw the time of the last step into this page: types of node and the dearest nodes.");
  command->add_option("--trace", arguments->trace,
                      "Write every backward, node by node, into this file, for ui.perfetto.dev and "
                      "chrome://tracing.");
  option(*command, "--world", arguments->world, "Train in so many processes, started from here (ddp).",
         CLI::Range(1, 64));
  // What launch() adds for the processes that it starts; an empty group hides them from --help.
  command->add_option("--rank", arguments->rank)->group("");
  command->add_option("--port", arguments->port)->group("");
}

}  // namespace overdrive::cli
