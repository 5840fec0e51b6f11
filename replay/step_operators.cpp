#include "replay/step_operators.h"

#include "engine/base/no_destructor.h"
#include "replay/file/names.h"
#include "replay/file/step_file.h"
#include "replay/file/write_step.h"
#include "replay/python_operators.h"

#include <torch/library.h>

#include <tuple>

namespace overdrive::replay {

namespace {

using Tensors = std::vector<at::Tensor>;
using Texts = std::vector<std::string>;

template <typename T>
T& object_of(int64_t handle) {
  TORCH_CHECK(handle != 0, "a step is missing.");
  return *reinterpret_cast<T*>(handle);  // NOLINT(performance-no-int-to-ptr)
}

overdrive::Step& step_of_handle(int64_t handle) { return object_of<overdrive::Step>(handle); }

void save(const std::string& path, const std::vector<int64_t>& captures, const Texts& functions,
          const Texts& names, const Tensors& tensors, bool values) {
  TORCH_CHECK(captures.size() == functions.size() && names.size() == tensors.size(), "a name is missing.");
  SaveOptions options{.values = values};
  NamedTensors given;
  for (size_t i = 0; i < names.size(); ++i) given.emplace_back(names[i], tensors[i]);
  add_names(options.names, given, "");
  std::vector<FunctionToSave> to_save;
  for (size_t i = 0; i < captures.size(); ++i)
    to_save.push_back(object_of<overdrive_capture>(captures[i]).step.to_save(functions[i]));
  write_step(path, to_save, options);
}

int64_t load(const std::string& path, bool check, bool accept_other_bits, int64_t most_memory) {
  auto step =
      std::make_unique<overdrive::Step>(load_step(path, {.check = check,
                                                         .accept_other_bits = accept_other_bits,
                                                         .most_memory = static_cast<uint64_t>(most_memory)}));
  return reinterpret_cast<int64_t>(step.release());
}

void free_step(int64_t handle) { delete &step_of_handle(handle); }

Tensors call_function(int64_t handle, const std::string& function, const Tensors& inputs) {
  return step_of_handle(handle).call(function, inputs);
}

std::tuple<Texts, Tensors> named(int64_t handle) {
  std::tuple<Texts, Tensors> result;
  for (const auto& [name, tensor] : step_of_handle(handle).named_tensors()) {
    std::get<0>(result).push_back(name);
    std::get<1>(result).push_back(tensor);
  }
  return result;
}

std::tuple<Texts, std::vector<double>> numbers(int64_t handle) {
  std::tuple<Texts, std::vector<double>> result;
  for (const auto& [name, value] : step_of_handle(handle).optimizer_numbers()) {
    std::get<0>(result).push_back(name);
    std::get<1>(result).push_back(value);
  }
  return result;
}

std::tuple<Texts, Texts> load_state(int64_t handle, const std::string& path) {
  LoadedState loaded = step_of_handle(handle).load_state(path);
  return {std::move(loaded.missing), std::move(loaded.unexpected)};
}

void define(torch::Library& made) {
  made.def(
      "step_save(str path, int[] captures, str[] functions, str[] names, Tensor[] tensors, bool values) -> ()",
      &save);
  made.def("step_load(str path, bool check, bool accept_other_bits, int most_memory) -> int", &load);
  made.def("step_free(int step) -> ()", &free_step);
  made.def("step_call(int step, str function, Tensor[] inputs) -> Tensor[]", &call_function);
  made.def("step_functions(int step) -> str[]", [](int64_t step) { return step_of_handle(step).functions(); });
  made.def("step_named(int step) -> (str[], Tensor[])", &named);
  made.def("step_parameters(int step) -> Tensor[]",
           [](int64_t step) { return step_of_handle(step).parameters(); });
  made.def("step_numbers(int step) -> (str[], float[])", &numbers);
  made.def("step_set_number(int step, str name, float value) -> ()",
           [](int64_t step, const std::string& name, double value) {
             step_of_handle(step).set_optimizer_number(name, value);
           });
  made.def("step_set_learning_rate(int step, float rate) -> ()",
           [](int64_t step, double rate) { step_of_handle(step).set_learning_rate(rate); });
  made.def("step_restore_generator(int step) -> ()",
           [](int64_t step) { step_of_handle(step).restore_generator(); });
  made.def("step_save_state(int step, str path) -> ()",
           [](int64_t step, const std::string& path) { step_of_handle(step).save_state(path); });
  made.def("step_load_state(int step, str path) -> (str[], str[])", &load_state);
  made.def("step_describe(int step) -> str", [](int64_t step) { return step_of_handle(step).describe(); });
}

}  // namespace

void register_step_operators() {
  static const base::NoDestructor<torch::Library> library([] {
    torch::Library made(torch::Library::FRAGMENT, "overdrive", std::nullopt, __FILE__, __LINE__);
    define(made);
    return made;
  }());
}

}  // namespace overdrive::replay
