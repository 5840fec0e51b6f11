#include "replay/python_operators.h"

#include "engine/base/no_destructor.h"
#include "replay/apart.h"
#include "replay/record/recorder.h"
#include "replay/run/python_optimizers.h"

#include <torch/library.h>

#include <atomic>

namespace overdrive::replay {

namespace {

overdrive_capture& capture_of(int64_t handle) {
  TORCH_CHECK(handle != 0, "a captured step is missing.");
  return *reinterpret_cast<overdrive_capture*>(handle);  // NOLINT(performance-no-int-to-ptr)
}

std::vector<at::Tensor> call(int64_t handle, const std::vector<at::Tensor>& inputs) {
  return capture_of(handle).step.call(inputs);
}

// A call of a function that lives outside. A backward on another thread may run the function as well.
struct OutsideCall {
  const std::vector<at::Tensor>& inputs;
  std::vector<at::Tensor> results = {};
};
thread_local OutsideCall* call_under_way = nullptr;

OutsideCall& under_way() {
  TORCH_CHECK(call_under_way, "no captured function runs on this thread.");
  return *call_under_way;
}

std::vector<at::Tensor> inputs_of(int64_t) { return under_way().inputs; }

void note_owners(int64_t, const std::vector<at::Tensor>& tensors) {
  if (Recorder* recorder = Recorder::active()) recorder->note_owners(tensors);
}

bool knows(int64_t, const at::Tensor& tensor) {
  const Recorder* recorder = Recorder::active();
  return recorder && recorder->knows_outside(tensor);
}

bool is_made(const at::Tensor& tensor) {
  const Recorder* recorder = Recorder::active();
  return recorder && recorder->has_made(tensor);
}

std::atomic<int (*)(int64_t)> called_apart{nullptr};
std::atomic<void (*)(int64_t)> forgotten_apart{nullptr};

// A function outside, which lives as long as this does.
struct OutsideFunction {
  explicit OutsideFunction(int64_t n) : number(n) {}
  ~OutsideFunction() {
    if (auto* told = forgotten_apart.load()) told(number);
  }
  OutsideFunction(const OutsideFunction&) = delete;
  OutsideFunction& operator=(const OutsideFunction&) = delete;
  const int64_t number;
};

std::vector<at::Tensor> apart_outside(int64_t number, int64_t identity, const std::vector<at::Tensor>& inputs) {
  auto kept = std::make_shared<OutsideFunction>(number);
  auto call = [kept = std::move(kept)](const std::vector<at::Tensor>& given) {
    auto* function = called_apart.load();
    OutsideCall under{.inputs = given};
    OutsideCall* const before = std::exchange(call_under_way, &under);
    const bool done = function && function(kept->number) != 0;
    call_under_way = before;
    TORCH_CHECK(done, "A function that runs apart failed.");
    return std::move(under.results);
  };
  return run_apart(apart_function(std::move(call), reinterpret_cast<const void*>(identity)),  // NOLINT
                   inputs);
}

void leave_results(int64_t, std::vector<at::Tensor> results) { under_way().results = std::move(results); }

}  // namespace

std::vector<at::Tensor> call_outside(overdrive_capture& capture, const std::vector<at::Tensor>& inputs) {
  OutsideCall call{.inputs = inputs};
  OutsideCall* const before = std::exchange(call_under_way, &call);
  const bool done = capture.function() != 0;
  call_under_way = before;
  TORCH_CHECK(done, "The captured function failed.");
  return std::move(call.results);
}

void call_apart_outside(int (*called)(int64_t number), void (*forgotten)(int64_t number)) {
  called_apart.store(called);
  forgotten_apart.store(forgotten);
}

void register_python_operators() {
  static const base::NoDestructor<torch::Library> library([] {
    torch::Library made(torch::Library::FRAGMENT, "overdrive", std::nullopt, __FILE__, __LINE__);
    made.def("capture_call(int capture, Tensor[] inputs) -> Tensor[]", &call);
    made.def("capture_inputs(int capture) -> Tensor[]", &inputs_of);
    made.def("capture_owners(int capture, Tensor[] tensors) -> ()", &note_owners);
    made.def("capture_knows(int capture, Tensor tensor) -> bool", &knows);
    made.def("capture_made(Tensor tensor) -> bool", &is_made);
    made.def("apart_outside(int number, int identity, Tensor[] inputs) -> Tensor[]", &apart_outside);
    made.def("capture_results(int capture, Tensor[] results) -> ()", &leave_results);
    return made;
  }());
  define_python_optimizers();
}

}  // namespace overdrive::replay
