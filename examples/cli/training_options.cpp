#include "examples/cli/training_options.h"

#include "examples/data/data_files.h"

#include <functional>
#include <map>
#include <utility>

namespace overdrive::cli {

namespace {

const std::map<std::string, torch::ScalarType> kDtypes{
    {"float32", torch::kFloat32}, {"float64", torch::kFloat64}, {"bfloat16", torch::kBFloat16}};

torch::Device parse_device(const std::string& name) {
  const int64_t gpus = torch::cuda::is_available() ? static_cast<int64_t>(torch::cuda::device_count()) : 0;
  if (name == "auto") return gpus > 0 ? torch::Device(torch::kCUDA, 0) : torch::Device(torch::kCPU);
  if (name == "cpu") return torch::kCPU;
  int64_t index = -1;
  if (name == "cuda") index = 0;
  if (name.starts_with("cuda:") && name.size() > 5 && name.size() < 9 &&
      name.find_first_not_of("0123456789", 5) == std::string::npos) {
    index = std::stoll(name.substr(5));
  }
  if (index < 0) throw UsageError("--device is cpu, cuda:N or auto, not \"" + name + "\".");
  if (index >= gpus) {
    throw UsageError("there is no device " + name + " here: this LibTorch sees " + std::to_string(gpus) +
                     " CUDA devices.");
  }
  return {torch::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

}  // namespace

void add_model_options(CLI::App& command, TrainingOptions& options) {
  command.add_option("name", options.name, "The model: see `overdrive list`.")->option_text("NAME");
  option(command, "--seed", options.setup.seed, "Seed of parameters and data order.", zero_or_above());
  auto* setup = &options.setup;
  command
      .add_option_function<std::string>(
          "--device", [setup](const std::string& name) { setup->device = parse_device(name); },
          "Where the model lives: cpu, cuda:0, ... or auto, a GPU if there is one.")
      ->default_str("cpu");
  command
      .add_option_function<std::string>(
          "--dtype", [setup](const std::string& name) { setup->dtype = kDtypes.at(name); },
          "Of the parameters.")
      ->check(CLI::IsMember({"float32", "float64", "bfloat16"}))
      ->default_str("float32");
  option(command, "--threads", options.threads, "Threads inside one operation.", CLI::Range(1, 1024));
  command
      .add_option_function<std::string>("--data", &data::set_folder, "Read the data files from this folder.")
      ->check(CLI::ExistingDirectory);
}

void add_training_options(CLI::App& command, TrainingOptions& options) {
  add_model_options(command, options);
  command.add_option("--steps", options.steps, "Training steps (default: the trainer's own).")
      ->check(above_zero());
  options.output.add_to(command);
}

std::vector<const trainers::TrainerInfo*> find_or_complain(const std::string& name) {
  auto found = trainers::find_trainers(name);
  if (found.empty()) throw UsageError("there is no trainer \"" + name + "\"; `overdrive list` names them.");
  return found;
}

namespace {

using Make = std::function<hooks::HooksPtr()>;

const std::vector<std::pair<std::string, Make>>& packers() {
  static const std::vector<std::pair<std::string, Make>> all{
      {"plain", [] { return hooks::HooksPtr(); }},
      {"keep", [] { return hooks::keep(); }},
      {"int8", [] { return hooks::schedulable(hooks::quantise()); }},
      {"bf16", [] { return hooks::schedulable(hooks::quantise({.type = hooks::QuantisedType::kBFloat16})); }},
      {"spill", [] { return hooks::schedulable(hooks::spill_to_disk()); }},
      {"offload", [] { return hooks::schedulable(hooks::offload_to_cpu()); }}};
  return all;
}

}  // namespace

std::vector<std::string> packer_names() {
  std::vector<std::string> names;
  for (const auto& [name, make] : packers()) names.push_back(name);
  return names;
}

hooks::HooksPtr packer_named(const std::string& name) {
  for (const auto& [known, make] : packers()) {
    if (known == name) return make();
  }
  return nullptr;
}

}  // namespace overdrive::cli
