#include "replay/file/step_file.h"

#include "engine/base/c_error.h"
#include "replay/file/loaded_step.h"
#include "replay/file/settings.h"
#include "replay/file/state_file.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

namespace overdrive {

namespace {

// Of the call that has failed: ": No such file or directory".
std::string because_of_errno() { return errno ? c10::str(": ", std::strerror(errno)) : ""; }

// By the system's call, because the C++ library of 2018 has no std::filesystem.
bool is_folder(const std::string& path) {
  const int opened = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (opened < 0) return false;
  ::close(opened);
  return true;
}

std::shared_ptr<std::string> bytes_of_file(const std::string& path) {
  TORCH_CHECK(!is_folder(path), "it is a folder.");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  TORCH_CHECK(file, "it cannot be opened", because_of_errno(), ".");
  TORCH_CHECK(file.peek() != std::ifstream::traits_type::eof(), "the file is empty.");
  std::ostringstream all;
  all << file.rdbuf();
  TORCH_CHECK(file && all, "it cannot be read", because_of_errno(), ".");
  return std::make_shared<std::string>(std::move(all).str());
}

// An error of the action names the file.
template <typename Action>
auto about(const std::string& path, const Action& action) {
  std::string text;
  try {
    return action();
  } catch (const std::exception& error) {
    text = base::text_of(error);
  }
  C10_THROW_ERROR(Error, c10::str(path, ": ", text));
}

using Named = std::vector<std::pair<std::string, at::Tensor>>;

// A step file, or a dict that torch.save() or save_state() wrote.
Named state_of_file(const std::string& path) {
  const auto bytes = bytes_of_file(path);
  if (!bytes->starts_with(replay::kArchiveMagic)) {
    const replay::LoadedStep step(replay::from_bytes(bytes), {.check = false});
    return step.state();
  }
  return replay::state_from_bytes(*bytes);
}

// Of each program of a function.
template <typename Get>
auto of_programs(const replay::LoadedStep& loaded, const std::string& function, const Get& get) {
  std::vector<decltype(get(*loaded.programs[0][0]))> result;
  for (const auto& program : loaded.programs[loaded.function_named(function)]) result.push_back(get(*program));
  return result;
}

replay::LoadedStep& present(const std::unique_ptr<replay::LoadedStep>& loaded) {
  TORCH_CHECK(loaded, "The step was moved to another one; call that one.");
  return *loaded;
}

}  // namespace

Step load_step(const std::string& path, LoadOptions options) {
  return about(path, [&] {
    replay::check_torch();
    return Step(std::make_unique<replay::LoadedStep>(replay::from_bytes(bytes_of_file(path)), options));
  });
}

Step::Step(std::unique_ptr<replay::LoadedStep> loaded) : loaded_(std::move(loaded)) {}
Step::~Step() = default;
Step::Step(Step&&) noexcept = default;
Step& Step::operator=(Step&&) noexcept = default;

std::vector<at::Tensor> Step::operator()(const std::vector<at::Tensor>& inputs) {
  return present(loaded_).call(0, inputs);
}

std::vector<at::Tensor> Step::call(const std::string& function, const std::vector<at::Tensor>& inputs) {
  return present(loaded_).call(present(loaded_).function_named(function), inputs);
}

std::vector<std::string> Step::functions() const {
  std::vector<std::string> names;
  for (const auto& function : present(loaded_).stored.functions) names.push_back(function.name);
  return names;
}

std::vector<std::vector<at::Tensor>> Step::recorded_inputs(const std::string& function) const {
  return of_programs(present(loaded_), function,
                     [](const replay::LoadedProgram& program) { return program.recorded_inputs(); });
}

std::vector<double> Step::recorded_seconds(const std::string& function) const {
  return of_programs(present(loaded_), function, [](const replay::LoadedProgram& program) {
    return program.stored().call ? program.stored().call->seconds : 0.0;
  });
}

std::vector<EagerCost> Step::recorded_eager_cost(const std::string& function) const {
  return of_programs(present(loaded_), function,
                     [](const replay::LoadedProgram& program) { return program.stored().eager; });
}

std::vector<size_t> Step::operator_counts(const std::string& function) const {
  return of_programs(present(loaded_), function, [](const replay::LoadedProgram& program) {
    return program.run().bound().passes().count(replay::Fate::kRuns);
  });
}

Named Step::named_tensors() const { return present(loaded_).named(); }

std::vector<at::Tensor> Step::parameters() const {
  const replay::LoadedStep& loaded = present(loaded_);
  std::vector<at::Tensor> result;
  for (size_t i = 0; i < loaded.stored.tensors.size(); ++i) {
    const auto& views = loaded.stored.tensors[i].views;
    for (size_t k = 0; k < views.size(); ++k) {
      if (views[k].is_parameter) result.push_back(loaded.tensors.views[i][k]);
    }
  }
  return result;
}

std::map<std::string, double> Step::optimizer_numbers() const {
  std::map<std::string, double> result;
  for (const auto& number : present(loaded_).numbers()) result[number.name] = number.value;
  return result;
}

void Step::set_optimizer_number(const std::string& name, double value) {
  bool found = false;
  for (const auto& number : present(loaded_).numbers()) {
    if (number.name != name) continue;
    number.set(value);
    found = true;
  }
  TORCH_CHECK(found, "The step has no optimizer's number ", name, "; optimizer_numbers() has them all.");
}

void Step::set_learning_rate(double rate) {
  bool found = false;
  for (const auto& number : present(loaded_).numbers()) {
    if (!number.name.ends_with(".lr")) continue;
    number.set(rate);
    found = true;
  }
  TORCH_CHECK(found,
              "The step has no learning rate that can be changed: its optimizer's numbers are constants.");
}

void Step::restore_generator() {
  const replay::StoredStep& stored = present(loaded_).stored;
  replay::set_states(stored.generators, stored.generator_states);
}

void Step::save_state(const std::string& path) const {
  const std::string bytes = replay::state_to_bytes(present(loaded_).state());
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  TORCH_CHECK(file, path, ": it cannot be written", because_of_errno(), ".");
}

LoadedState Step::load_state(const std::string& path) {
  return about(path, [&] { return present(loaded_).take_state(state_of_file(path)); });
}

void Step::to_module_state(torch::nn::Module& module) const {
  const at::NoGradGuard no_grad;
  const Named own = named_tensors();
  const auto take = [&](const std::string& name, at::Tensor to) {
    const auto found =
        std::find_if(own.begin(), own.end(), [&](const auto& each) { return each.first == name; });
    TORCH_CHECK(found != own.end(), "The step has no tensor ", name, ".");
    TORCH_CHECK(found->second.sizes() == to.sizes(), name, " has sizes ", found->second.sizes(),
                " in the step and ", to.sizes(), " in the module.");
    to.copy_(found->second);
  };
  for (const auto& each : module.named_parameters()) take(each.key(), each.value());
  for (const auto& each : module.named_buffers()) take(each.key(), each.value());
}

std::string Step::describe() const { return replay::text_of(present(loaded_)); }

}  // namespace overdrive
