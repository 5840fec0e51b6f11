#include "replay/guard/input_signature.h"

#include "replay/record/refusals.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>
#include <torch/csrc/autograd/variable.h>

#include <cstring>

namespace overdrive::replay {

namespace {

// Note [Alignment of inputs]: a replay reads a copy of each input, so where the caller's memory lies could not
// matter, were it not for the vendor's matrix products. Their last bits depend on whether an operand of float
// or double begins at a multiple of 16 bytes: measured with MKL on 22 operators, at each offset up to 64 bytes,
// with vectors and matrices up to 300. So a copy begins at the same offset modulo 16, and another offset is
// another program: a slice of floats at odd rows needs up to four. An earlier rule, modulo 64 for all types,
// needed 16.
uint8_t alignment_of(const at::Tensor& tensor) {
  constexpr uintptr_t kProducts = 16;
  if (!tensor.is_floating_point() && !tensor.is_complex()) return 0;
  return static_cast<uint8_t>(reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % kProducts);
}

size_t first_same(const std::vector<at::Tensor>& inputs, size_t index) {
  size_t first = 0;
  while (!inputs[first].is_same(inputs[index])) ++first;
  return first;
}

bool do_views_require_grad(const at::Tensor& tensor) {
  return tensor.requires_grad() && (!tensor.is_view() || tensor._base().requires_grad());
}

bool leaf_has_hooks(const at::Tensor& leaf) {
  const auto* meta = torch::autograd::impl::get_autograd_meta(leaf);
  if (!meta) return false;
  return !torch::autograd::impl::hooks(leaf).empty() ||
         torch::autograd::impl::post_acc_grad_hooks(leaf) != nullptr;
}

// From the first element to the last, gaps included.
size_t span_bytes(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  int64_t last = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  return static_cast<size_t>(last + 1) * tensor.element_size();
}

}  // namespace

InputSignature::InputSignature(const std::vector<at::Tensor>& inputs, size_t index)
    : sizes(inputs[index].sizes()),
      strides(inputs[index].strides()),
      type(inputs[index].scalar_type()),
      keys(inputs[index].key_set()),
      requires_grad(inputs[index].requires_grad()),
      views_require_grad(do_views_require_grad(inputs[index])),
      alignment(alignment_of(inputs[index])),
      same_as(first_same(inputs, index)) {}

bool InputSignature::fits(const std::vector<at::Tensor>& inputs, size_t index) const {
  return fits(inputs[index]) && same_as == first_same(inputs, index);
}

bool InputSignature::fits(const at::Tensor& input) const {
  return type == input.scalar_type() && keys == input.key_set() && alignment == alignment_of(input) &&
         input.sizes() == sizes && input.strides() == strides && input.requires_grad() == requires_grad &&
         do_views_require_grad(input) == views_require_grad;
}

std::vector<InputSignature> signatures_of(const std::vector<at::Tensor>& inputs) {
  std::vector<InputSignature> signatures;
  for (size_t i = 0; i < inputs.size(); ++i) signatures.emplace_back(inputs, i);
  return signatures;
}

std::string refusal_of_inputs(const std::vector<at::Tensor>& inputs, bool is_part) {
  for (const at::Tensor& input : inputs) {
    if (!input.defined()) return "An input is undefined.";
    if (!refusal_of(input, "").empty()) {
      return "An input is not an ordinary dense tensor on the CPU.";
    }
    if (is_part || !input.requires_grad()) continue;
    if (!input.is_leaf()) return "An input has a graph, which would go on outside; give it detached.";
    if (leaf_has_hooks(input)) return "An input has hooks, which a replay would not call; give it detached.";
  }
  return "";
}

bool fits(const std::vector<InputSignature>& signatures, const std::vector<at::Tensor>& inputs) {
  if (signatures.size() != inputs.size()) return false;
  for (size_t i = 0; i < signatures.size(); ++i) {
    if (!inputs[i].defined() || !signatures[i].fits(inputs, i)) return false;
  }
  return true;
}

namespace {

at::Tensor buffer_like(const at::Tensor& input) {
  const size_t before = alignment_of(input);
  const size_t bytes = before + span_bytes(input);
  at::DataPtr data = c10::GetCPUAllocator()->allocate(bytes);
  // Gaps between the elements are compared as well, where two calls are.
  if (bytes > 0) std::memset(data.get(), 0, bytes);
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, std::move(data), nullptr, false);
  // An element lies at a multiple of its size, so the distance is one of the offset that a tensor can have.
  auto buffer = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), input.dtype());
  buffer.unsafeGetTensorImpl()->set_sizes_and_strides(input.sizes(), input.strides(),
                                                      static_cast<int64_t>(before / input.element_size()));
  return buffer;
}

}  // namespace

std::vector<at::Tensor> buffers_like(const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> buffers;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const size_t first = first_same(inputs, i);
    buffers.push_back(first < i ? buffers[first] : buffer_like(inputs[i]));
  }
  return buffers;
}

void copy_elements(const at::Tensor& to, const at::Tensor& from) {
  if (from.numel() == 0) return;
  if (from.is_non_overlapping_and_dense() && from.strides() == to.strides()) {
    std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
    return;
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  at::Tensor target = to, source = from;
  // Of an expanded dimension the first row stands for all; LibTorch does not write to the others.
  for (int64_t dim = from.dim() - 1; dim >= 0; --dim) {
    if (from.stride(dim) != 0 || from.size(dim) == 1) continue;
    target = target.select(dim, 0);
    source = source.select(dim, 0);
  }
  target.copy_(source);
}

bool same_elements(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0) return true;
  if (a.is_non_overlapping_and_dense() && a.strides() == b.strides()) {
    return std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  return std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

namespace {

// A tensor like the given one, at its offset in a storage of so many bytes, which is made when there is none.
at::Tensor in_storage(const at::Tensor& tensor, c10::Storage& copy, size_t bytes) {
  if (!copy) {
    at::DataPtr data = c10::GetCPUAllocator()->allocate(bytes);
    copy = c10::Storage(c10::Storage::use_byte_size_t(), bytes, std::move(data), c10::GetCPUAllocator(), true);
  }
  auto result = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(copy), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(),
                                                      tensor.storage_offset());
  return result;
}

}  // namespace

// A slice lies as it does in eager calls, also where its elements are: an operator that comes next may have
// other last bits where they are aligned in another way.
at::Tensor room_for(const at::Tensor& tensor) {
  const int64_t offset = tensor.storage_offset();
  if (offset == 0)
    return at::Tensor(at::detail::empty_strided_cpu(tensor.sizes(), tensor.strides(), tensor.scalar_type()));
  c10::Storage storage;
  return in_storage(
      tensor, storage,
      at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(), offset));
}

std::vector<at::Tensor> room_for(const std::vector<at::Tensor>& tensors) {
  const at::AutoDispatchBelowADInplaceOrView below;
  std::vector<at::Tensor> copies;
  std::vector<c10::Storage> storages(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    size_t first = i, others = 0;
    for (size_t k = 0; tensor.defined() && k < tensors.size(); ++k) {
      if (k == i || !tensors[k].defined() || !tensors[k].storage().is_alias_of(tensor.storage())) continue;
      first = std::min(first, k);
      ++others;
    }
    if (!tensor.defined()) {
      copies.emplace_back();
    } else if (others > 0) {
      copies.push_back(in_storage(tensor, storages[first], tensor.storage().nbytes()));
    } else {
      copies.push_back(room_for(tensor));
    }
  }
  return copies;
}

std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies = room_for(tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].defined()) copy_elements(copies[i], tensors[i]);
  }
  return copies;
}

}  // namespace overdrive::replay
