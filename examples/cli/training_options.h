// The options that train, compare and graph have in common. Plain values.
#pragma once

#include "examples/cli/cli.h"
#include "examples/trainers/trainer.h"
#include "hooks/hooks.h"

#include <string>
#include <vector>

namespace overdrive::cli {

struct TrainingOptions {
  std::string name;
  int64_t steps = 0;  // 0: the trainer's own
  trainers::Setup setup;
  int threads = 1;
  Output output;
};

// Adds NAME, --seed, --device, --dtype, --threads and --data.
void add_model_options(CLI::App& command, TrainingOptions& options);
// These, --steps, --json and --quiet.
void add_training_options(CLI::App& command, TrainingOptions& options);

// The trainers that `name` stands for. Throws UsageError when there are none.
std::vector<const trainers::TrainerInfo*> find_or_complain(const std::string& name);

// The packers of saved tensors that `--save-tensors` knows by name.
std::vector<std::string> packer_names();
// Of one of those names; null for "plain". Throws what making it throws.
hooks::HooksPtr packer_named(const std::string& name);

}  // namespace overdrive::cli
