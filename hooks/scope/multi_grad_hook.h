// Hooks on the gradients of several tensors, as torch.autograd.graph.register_multi_grad_hook() of Python:
//
//   auto handle = register_multi_grad_hook({a, b}, [](const std::vector<at::Tensor>& gradients) { ... });
//   auto first = register_multi_grad_hook({a, b}, [](const at::Tensor& gradient) { ... });
//   handle.remove();
//
// The first is called once a backward, when the gradients of all its tensors are there that this backward
// makes; a gradient that it does not make is undefined. The second is called once a backward, with the gradient
// that comes first. On the thread that made the last (first) gradient. Any engine; any thread may register and
// remove.
#pragma once

#include "engine/base/export.h"

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace overdrive::hooks {

class OVERDRIVE_API MultiGradHook {  // The handle of a hook. Copies are the same handle.
 public:
  // Takes the hook off its tensors; nothing the second time. A handle that goes away leaves the hook.
  void remove();

 private:
  struct Places;
  explicit MultiGradHook(std::shared_ptr<Places> places) : places_(std::move(places)) {}
  friend OVERDRIVE_API MultiGradHook register_multi_grad_hook(
      const std::vector<at::Tensor>& tensors, std::function<void(const std::vector<at::Tensor>&)> hook);
  friend OVERDRIVE_API MultiGradHook register_multi_grad_hook(const std::vector<at::Tensor>& tensors,
                                                              std::function<void(const at::Tensor&)> hook);

  std::shared_ptr<Places> places_;
};
// Throws c10::Error for an empty function, for no tensors, and for a tensor that requires no gradient.
OVERDRIVE_API MultiGradHook register_multi_grad_hook(const std::vector<at::Tensor>& tensors,
                                                     std::function<void(const std::vector<at::Tensor>&)> hook);
OVERDRIVE_API MultiGradHook register_multi_grad_hook(const std::vector<at::Tensor>& tensors,
                                                     std::function<void(const at::Tensor&)> hook);

}  // namespace overdrive::hooks
