// A module with other parameters and buffers, for the length of one call:
//
//   NamedTensors other{{"weight", w}, {"bias", b}};
//   Tensor y = functional_call(linear, other, x);      // of a torch::nn::Linear, or any module with forward()
//
// Gradients, tangents and rows of vmap() reach the given tensors and not the module's own; names that are left
// out keep theirs. The module is not changed. Any thread; the names are those of named_parameters() and
// named_buffers(). A checkpointed region inside runs again with the given tensors.
#pragma once

#include "engine/base/export.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace overdrive::forward_ad {

using NamedTensors = std::map<std::string, at::Tensor>;

namespace detail {

class Substitution;

// The tensors of a module by name, one beside the other.
using ModuleTensors = std::vector<std::pair<std::string, at::Tensor>>;

// While it lives, operators of this thread get the given tensors instead of the module's.
class OVERDRIVE_API SubstitutionScope {
 public:
  SubstitutionScope(const ModuleTensors& own, const NamedTensors& given);
  ~SubstitutionScope();
  SubstitutionScope(const SubstitutionScope&) = delete;
  SubstitutionScope& operator=(const SubstitutionScope&) = delete;

 private:
  const std::shared_ptr<Substitution> substitution_;
  const bool was_included_;
};

}  // namespace detail

// Note [Substituted parameters]
// A module of C++ holds its parameters in members of its own, which nobody outside can set. So the module keeps
// them, and a kernel above all others (a dispatch key of this thread) puts the given tensors in their place
// when an operator gets them. Code that asks a parameter itself, for its shape, sees the module's own: so
// shapes must be equal. A torch::autograd::Function that gets a parameter is not an operator. It is refused,
// since its gradient would go to the module's own tensor; CustomJvp and DoubleVjp get the given one.
template <typename ModulePtr, typename... Args>
auto functional_call(ModulePtr module, const NamedTensors& tensors, Args&&... args) {
  TORCH_CHECK(static_cast<bool>(module), "functional_call: the module is empty.");
  detail::ModuleTensors own;
  for (const auto& named : module->named_parameters()) own.emplace_back(named.key(), named.value());
  for (const auto& named : module->named_buffers()) own.emplace_back(named.key(), named.value());
  const detail::SubstitutionScope scope(own, tensors);
  return module->forward(std::forward<Args>(args)...);
}

}  // namespace overdrive::forward_ad
