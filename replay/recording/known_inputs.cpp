#include "replay/recording/known_inputs.h"

#include <algorithm>

namespace overdrive::replay {

void KnownInputs::note(const Program& before, const Program& now) {
  varied_.resize(now.inputs.size());
  for (size_t i = 0; i < now.inputs.size(); ++i) {
    if (before.inputs[i] != now.inputs[i]) varied_[i] = true;
  }
}

bool KnownInputs::know(const Program& program, const std::vector<at::Tensor>& inputs) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!varied_[i] && program.inputs[i]._unsafe_get_target() != inputs[i].unsafeGetTensorImpl()) return false;
  }
  return true;
}

bool tells_apart(const Program& program, const std::vector<at::Tensor>& inputs) {
  return std::none_of(program.outside.begin(), program.outside.end(), [&](const OutsideTensor& outside) {
    return outside.lives && std::any_of(inputs.begin(), inputs.end(), [&](const at::Tensor& input) {
             return input.unsafeGetTensorImpl() == outside.raw;
           });
  });
}

// The function may ask which of the two it has.
bool is_known_leaf(const Program& program, const std::vector<at::Tensor>& inputs) {
  const bool any_leaf = std::any_of(inputs.begin(), inputs.end(), [](const at::Tensor& input) {
    return input.requires_grad() && input.is_leaf();
  });
  return any_leaf && !tells_apart(program, inputs);
}

void fill_buffers(const ReplayRun& run, const std::vector<at::Tensor>& inputs,
                  const std::vector<InputSignature>& signatures, const ValueGuards* guards) {
  const std::vector<at::Tensor>& buffers = run.bound().buffers();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const size_t same_as = i < signatures.size() ? signatures[i].same_as : i;
    if (same_as == i && (!guards || !guards->holds(i))) copy_elements(buffers[i], inputs[i]);
  }
}

void give_back_inputs(const ReplayRun& run, const std::vector<at::Tensor>& inputs) {
  const Program& program = run.program();
  for (const Memory& memory : program.memories) {
    if (memory.origin != Origin::kInput || !memory.written) continue;
    const at::Tensor& input = inputs[memory.input];
    copy_elements(input, run.bound().buffers()[memory.input]);
    if (input.is_inference()) continue;
    for (int64_t i = 0; i < program.input_bumps[memory.input]; ++i) input.unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace overdrive::replay
