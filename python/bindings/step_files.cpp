#include "python/bindings/captures.h"
#include "replay/file/names.h"
#include "replay/file/step_file.h"
#include "replay/file/write_step.h"

#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace overdrive::python {
namespace {

using StepPtr = HeldPtr<Step>;
using Tensors = std::vector<at::Tensor>;
using Names = std::vector<std::string>;

void save(const std::string& path, const std::vector<CapturePtr>& captures, const Names& functions,
          const Names& names, const Tensors& tensors, bool values) {
  TORCH_CHECK(captures.size() == functions.size() && names.size() == tensors.size(), "a name is missing.");
  SaveOptions options{.values = values};
  replay::NamedTensors given;
  for (size_t i = 0; i < names.size(); ++i) given.emplace_back(names[i], tensors[i]);
  replay::add_names(options.names, given, "");
  std::vector<replay::FunctionToSave> to_save;
  for (size_t i = 0; i < captures.size(); ++i) {
    to_save.push_back((*captures[i])->step.to_save(functions[i]));
  }
  replay::write_step(path, to_save, options);
}

StepPtr load(const std::string& path, bool check, bool accept_other_bits, int64_t most_memory) {
  return hold<Step>([&] {
    return load_step(path, {.check = check,
                            .accept_other_bits = accept_other_bits,
                            .most_memory = static_cast<uint64_t>(most_memory)});
  });
}

// Names, and what has them.
template <typename Value, typename Named>
std::tuple<Names, std::vector<Value>> apart(const Named& named) {
  std::tuple<Names, std::vector<Value>> result;
  for (const auto& [name, value] : named) {
    std::get<0>(result).push_back(name);
    std::get<1>(result).push_back(value);
  }
  return result;
}

std::tuple<Names, Names> load_state(const StepPtr& step, const std::string& path) {
  LoadedState loaded = (*step)->load_state(path);
  return {std::move(loaded.missing), std::move(loaded.unexpected)};
}

}  // namespace

void add_step_files(torch::Library& library) {
  library.class_<StepPtr::element_type>("Step")
      .def_static("save", &save)
      .def_static("load", &load)
      .def_static("free", [](const StepPtr& step) { step->take(); })
      .def_static("call", [](const StepPtr& step, const std::string& function,
                             const Tensors& inputs) { return (*step)->call(function, inputs); })
      .def_static("functions", [](const StepPtr& step) { return (*step)->functions(); })
      .def_static("named_tensors",
                  [](const StepPtr& step) { return apart<at::Tensor>((*step)->named_tensors()); })
      .def_static("parameters", [](const StepPtr& step) { return (*step)->parameters(); })
      .def_static("optimizer_numbers",
                  [](const StepPtr& step) { return apart<double>((*step)->optimizer_numbers()); })
      .def_static("set_optimizer_number", [](const StepPtr& step, const std::string& name,
                                             double value) { (*step)->set_optimizer_number(name, value); })
      .def_static("set_learning_rate",
                  [](const StepPtr& step, double rate) { (*step)->set_learning_rate(rate); })
      .def_static("restore_generator", [](const StepPtr& step) { (*step)->restore_generator(); })
      .def_static("save_state", [](const StepPtr& step, const std::string& path) { (*step)->save_state(path); })
      .def_static("load_state", &load_state)
      .def_static("describe", [](const StepPtr& step) { return (*step)->describe(); });
}

}  // namespace overdrive::python
