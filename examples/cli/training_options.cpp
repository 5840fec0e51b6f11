#include "examples/cli/training_options.h"

#include "examples/data/data_files.h"

namespace overdrive::cli {

void add_training_options(CLI::App& command, TrainingOptions& options) {
  command.add_option("name", options.name, "What to train: see `overdrive list`.")->option_text("NAME");
  command.add_option("--steps", options.steps, "Training steps (default: the trainer's own).")
      ->check(CLI::PositiveNumber);
  command.add_option("--seed", options.seed, "Seed of parameters and data order.")->capture_default_str();
  command.add_option("--threads", options.threads, "Threads inside one operation.")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command
      .add_option_function<std::string>("--data", &data::set_folder, "Read the data files from this folder.")
      ->check(CLI::ExistingDirectory);
  command.add_option("--json", options.json, "Write the result to this file.");
  command.add_flag("--quiet", options.quiet, "Print nothing but errors.");
}

std::vector<const trainers::TrainerInfo*> find_or_complain(const std::string& name) {
  auto found = trainers::find_trainers(name);
  if (found.empty()) throw UsageError("there is no trainer \"" + name + "\"; `overdrive list` names them.");
  return found;
}

}  // namespace overdrive::cli
