// A captured step whose function lives outside C++, and the operators by which its tensors cross: another
// language calls overdrive::capture_call, and its function calls capture_inputs, capture_owners and
// capture_results. Owned by c_api's caller. One thread at a time, as a CapturedStep. Knows nothing of the other
// language.
#pragma once

#include "replay/captured_function.h"

#include <memory>
#include <vector>

// A name of c_api.h.
struct overdrive_capture {
  int (*function)();
  // Where this lies; null when it is gone and a graph that lives runs the function once more.
  std::shared_ptr<overdrive_capture*> address;
  overdrive::replay::CapturedFunction step;
};

namespace overdrive::replay {

// Once, before the first of them is made; on any thread.
void register_python_operators();

// Who runs functions apart that live outside, and is told when one is used no more.
void call_apart_outside(int (*called)(int64_t number), void (*forgotten)(int64_t number));

// Runs the function that lives outside.
std::vector<at::Tensor> call_outside(overdrive_capture& capture, const std::vector<at::Tensor>& inputs);

}  // namespace overdrive::replay
