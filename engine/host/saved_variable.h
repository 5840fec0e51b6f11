// Reads a saved tensor in place, without the copy and the new tensor that unpack() makes. Reads private fields
// of LibTorch's; docs/host_contract.md has the row, and a version without them does not compile this file
// alone. No state, any thread that holds the node's mutex.
#pragma once

#include "engine/base/torch_types.h"

#include <torch/csrc/autograd/saved_variable.h>

#include <mutex>

namespace overdrive::engine::host {

namespace saved_variable {

using torch::autograd::SavedVariable;

// An explicit instantiation may name private members; a friend function hands them out.
struct Data {
  friend constexpr at::Tensor SavedVariable::*place(Data);
};
struct Version {
  friend constexpr uint32_t SavedVariable::*place(Version);
};
template <typename Field, auto kPlace>
struct Reveal {
  friend constexpr decltype(kPlace) place(Field) { return kPlace; }
};
template struct Reveal<Data, &SavedVariable::data_>;
template struct Reveal<Version, &SavedVariable::saved_version_>;

struct MutexOf : base::Node {
  static std::mutex& of(base::Node& node) { return node.*(&MutexOf::mutex_); }
};

}  // namespace saved_variable

// The tensor, where unpack() would give its values and throw nothing; else null: there was none, it was
// released, a hook has it, or it was changed since it was saved.
inline const at::Tensor* read_saved(const torch::autograd::SavedVariable& saved) {
  if (saved.has_hooks()) return nullptr;
  const at::Tensor& data = saved.*place(saved_variable::Data());
  if (!data.defined() || data.is_inference()) return nullptr;
  const uint32_t version = data.unsafeGetTensorImpl()->version_counter().current_version();
  return version == saved.*place(saved_variable::Version()) ? &data : nullptr;
}

// False where there was no tensor, or where it was released.
inline bool holds_tensor(const torch::autograd::SavedVariable& saved) {
  return (saved.*place(saved_variable::Data())).defined();
}

// A node holds this while it reads its saved tensors, because another thread may release them.
inline std::mutex& mutex_of(base::Node& node) { return saved_variable::MutexOf::of(node); }

}  // namespace overdrive::engine::host
