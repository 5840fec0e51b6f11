#include "replay/guard/kept_gradients.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>

namespace overdrive::replay {

namespace {

// A wrapper of Python owns one reference to its tensor, and stays as long as others do. So that there is a
// wrapper says nothing; that Python holds it says the wrapper's own count, of which the tensor has one.
template <typename Target>
size_t wrappers_of(const Target& target) {
  return target.pyobj_slot()->load_pyobj() ? 1 : 0;
}

template <typename Target>
bool does_python_hold(const Target& target) {
  return target.pyobj_slot()->load_pyobj() && !target.pyobj_slot()->has_unique_reference();
}

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

// What is more than the known references, and not more than it ever was: who lets go does not come back unseen.
bool is_more(size_t count, size_t known, size_t& others) {
  const size_t now = count > known ? count - known : 0;
  const bool more = now > others;
  others = std::min(others, now);
  return more;
}

void swap_bytes(char* a, char* b, size_t bytes) { std::swap_ranges(a, a + bytes, b); }

at::Tensor tensor_like(const at::Tensor& tensor, const c10::Storage& storage) {
  auto result = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(),
                                                      tensor.storage_offset());
  return result;
}

}  // namespace

void note_holders(std::vector<LeafGradient>& gradients, const std::vector<at::Tensor>& results) {
  std::vector<at::Tensor> after;
  for (const LeafGradient& gradient : gradients) {
    const at::Tensor leaf(gradient.leaf.lock());
    after.push_back(leaf.defined() ? leaf.grad() : at::Tensor());
  }
  for (size_t i = 0; i < gradients.size(); ++i) {
    const auto* const storage = storage_of(after[i]);
    if (!storage) continue;
    // Each leaf and `after` hold it.
    size_t tensors = wrappers_of(*after[i].unsafeGetTensorImpl()), storages = wrappers_of(*storage);
    std::unordered_set<const c10::TensorImpl*> known;
    const auto count = [&](const at::Tensor& tensor, size_t references) {
      if (tensor.is_same(after[i])) tensors += references;
      if (storage_of(tensor) == storage && known.insert(tensor.unsafeGetTensorImpl()).second) ++storages;
    };
    for (const at::Tensor& tensor : after) count(tensor, 2);
    for (const at::Tensor& tensor : results) count(tensor, 1);
    const size_t uses = after[i].use_count(),
                 uses_of_storage = c10::raw::intrusive_ptr::use_count(
                     const_cast<c10::StorageImpl*>(storage));  // NOLINT(cppcoreguidelines-pro-type-const-cast)
    gradients[i].held = uses > tensors ? uses - tensors : 0;
    gradients[i].memory_held = uses_of_storage > storages ? uses_of_storage - storages : 0;
  }
}

void KeptGradients::add(const LeafGradient& leaf, const at::Tensor& gradient) {
  const auto in_memory = [&](const Made& made) {
    return made.storage.unsafeGetStorageImpl() == gradient.storage().unsafeGetStorageImpl();
  };
  auto made = std::find_if(made_.begin(), made_.end(), in_memory);
  if (made == made_.end())
    made =
        made_.insert(made_.end(), {.storage = gradient.storage(), .gradients = {}, .others = leaf.memory_held});
  const auto is_same = [&](const Gradient& each) { return each.tensor.is_same(gradient); };
  auto same = std::find_if(made->gradients.begin(), made->gradients.end(), is_same);
  if (same == made->gradients.end())
    same =
        made->gradients.insert(made->gradients.end(), {.tensor = gradient, .leaves = {}, .others = leaf.held});
  same->leaves.push_back({leaf.leaf, leaf.raw});
}

// The references of the leaves, as many of the guard, and the one here.
bool KeptGradients::Gradient::is_held() {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  size_t known = 1 + leaves.size() + wrappers_of(impl);
  for (const Leaf& leaf : leaves) {
    if (!leaf.weak.expired() && leaf.raw->grad().unsafeGetTensorImpl() == &impl) ++known;
  }
  return is_more(tensor.use_count(), known, others) || does_python_hold(impl);
}

// The references of the tensors, one of the program, and the one here.
bool KeptGradients::Made::is_held() {
  const c10::StorageImpl& impl = *storage.unsafeGetStorageImpl();
  bool held =
      is_more(storage.use_count(), 2 + gradients.size() + wrappers_of(impl), others) || does_python_hold(impl);
  for (Gradient& gradient : gradients) held |= gradient.is_held();
  return held;
}

void KeptGradients::begin_call() {
  any_kept_ = false;
  for (Made& made : made_) {
    made.kept.clear();
    if (!made.is_held() || made.storage.nbytes() == 0) continue;
    made.kept = c10::GetCPUAllocator()->allocate(made.storage.nbytes());
    std::memcpy(made.kept.get(), made.storage.data(), made.storage.nbytes());
    any_kept_ = true;
  }
}

bool KeptGradients::is_kept(const c10::TensorImpl* gradient) const {
  return any_kept_ && std::any_of(made_.begin(), made_.end(), [&](const Made& made) {
           return made.kept.get() &&
                  std::any_of(made.gradients.begin(), made.gradients.end(),
                              [&](const auto& each) { return each.tensor.unsafeGetTensorImpl() == gradient; });
         });
}

void KeptGradients::finish_call() {
  if (!any_kept_) return;
  for (Made& made : made_) {
    if (!made.kept.get()) continue;
    const size_t bytes = made.storage.nbytes();
    swap_bytes(static_cast<char*>(made.storage.mutable_data()), static_cast<char*>(made.kept.get()), bytes);
    const c10::Storage fresh(c10::Storage::use_byte_size_t(), bytes, std::move(made.kept),
                             c10::GetCPUAllocator(), /*resizable=*/true);
    for (const Gradient& gradient : made.gradients) {
      const at::Tensor tensor = tensor_like(gradient.tensor, fresh);
      for (const Leaf& leaf : gradient.leaves) {
        if (!leaf.weak.expired()) leaf.raw->mutable_grad() = tensor;
      }
    }
    made.kept.clear();
  }
  any_kept_ = false;
}

void KeptGradients::put_back() {
  if (!any_kept_) return;
  for (Made& made : made_) {
    if (made.kept.get()) std::memcpy(made.storage.mutable_data(), made.kept.get(), made.storage.nbytes());
    made.kept.clear();
  }
  any_kept_ = false;
}

}  // namespace overdrive::replay
