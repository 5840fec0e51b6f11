#include "forward_ad/same_random_numbers.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>

#include <algorithm>
#include <cstring>
#include <mutex>

namespace overdrive::forward_ad {

namespace {

// Bytes on the CPU, whatever the device; made without an operator, so no layer has them.
at::Tensor state_now(at::Generator generator) {
  std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void move_to(at::Generator generator, const at::Tensor& state) {
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

bool is_there(const at::Generator& generator, const at::Tensor& state) {
  at::Tensor now = state_now(generator);
  return now.nbytes() == state.nbytes() &&
         std::memcmp(now.const_data_ptr(), state.const_data_ptr(), now.nbytes()) == 0;
}

}  // namespace

SameRandomNumbers::SameRandomNumbers(const std::vector<at::Tensor>& inputs) {
  auto start_at = [this](const at::Generator& generator) {
    bool known = std::any_of(starts_.begin(), starts_.end(),
                             [&](const Start& start) { return start.generator == generator; });
    if (!known) starts_.push_back({generator, state_now(generator)});
  };
  start_at(at::detail::getDefaultCPUGenerator());
  for (const at::Tensor& input : inputs) {
    if (input.defined() && !input.device().is_cpu() && at::getAccelerator() == input.device().type())
      start_at(at::globalContext().defaultGenerator(input.device()));
  }
}

void SameRandomNumbers::keep_what_moved() {
  std::erase_if(starts_, [](const Start& start) { return is_there(start.generator, start.state); });
}

void SameRandomNumbers::rewind() const {
  for (const auto& [generator, state] : starts_) {
    if (!is_there(generator, state)) move_to(generator, state);
  }
}

DrawnAgain::DrawnAgain(const SameRandomNumbers& numbers) : before_(numbers) {
  for (auto& [generator, state] : before_.starts_) state = state_now(generator);
  numbers.rewind();
}

DrawnAgain::~DrawnAgain() { before_.rewind(); }

}  // namespace overdrive::forward_ad
