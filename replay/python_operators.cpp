#include "replay/python_operators.h"

#include "engine/base/no_destructor.h"

#include <torch/library.h>

namespace overdrive::replay {

namespace {

overdrive_capture& capture_of(int64_t handle) {
  TORCH_CHECK(handle != 0, "a captured step is missing.");
  return *reinterpret_cast<overdrive_capture*>(handle);  // NOLINT(performance-no-int-to-ptr)
}

std::vector<at::Tensor> call(int64_t handle, const std::vector<at::Tensor>& inputs) {
  return capture_of(handle).step.call(inputs);
}

std::vector<at::Tensor> inputs_of(int64_t handle) { return capture_of(handle).inputs; }

void leave_results(int64_t handle, std::vector<at::Tensor> results) {
  capture_of(handle).results = std::move(results);
}

}  // namespace

std::vector<at::Tensor> call_outside(overdrive_capture& capture, const std::vector<at::Tensor>& inputs) {
  capture.inputs = inputs;
  const bool done = capture.function() != 0;
  capture.inputs.clear();
  std::vector<at::Tensor> results = std::move(capture.results);
  capture.results.clear();
  TORCH_CHECK(done, "The captured function failed.");
  return results;
}

void register_python_operators() {
  static const base::NoDestructor<torch::Library> library([] {
    torch::Library made(torch::Library::FRAGMENT, "overdrive", std::nullopt, __FILE__, __LINE__);
    made.def("capture_call(int capture, Tensor[] inputs) -> Tensor[]", &call);
    made.def("capture_inputs(int capture) -> Tensor[]", &inputs_of);
    made.def("capture_results(int capture, Tensor[] results) -> ()", &leave_results);
    return made;
  }());
  define_python_optimizers();
}

}  // namespace overdrive::replay
