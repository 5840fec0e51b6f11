// The operators of the fake accelerator. A tensor's memory is the host's, so an operator runs on the CPU
// over an alias of it, without a copy; what it makes is given back as an alias, too.
#include "test/support/fake/accelerator_parts.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

namespace overdrive::test::fake {
namespace {

using at::Tensor;

Tensor shaped_like(const Tensor& tensor, c10::Storage storage, c10::DispatchKey key) {
  Tensor made =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), tensor.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.is_conj()) made._set_conj(true);
  if (tensor.is_neg()) made._set_neg(true);
  return made;
}

// A storage over the memory of `owner`, which it keeps alive.
c10::Storage alias_of(const Tensor& owner, at::Device device, void (*release)(void*)) {
  auto* keep = new Tensor(owner);
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), owner.storage().nbytes(),
      c10::DataPtr(owner.storage().mutable_data(), keep, release, device), nullptr, /*resizable=*/false));
}

bool is_fake(const Tensor& tensor) { return tensor.defined() && tensor.device().type() == kType; }

Tensor on_cpu(const Tensor& tensor) {
  const auto release = [](void* kept) { delete static_cast<Tensor*>(kept); };
  return shaped_like(tensor, alias_of(tensor, at::kCPU, release), c10::DispatchKey::CPU);
}

Tensor on_device(const Tensor& tensor, int index) {
  const auto release = [](void* kept) {
    auto* owner = static_cast<Tensor*>(kept);
    checker().forget(owner->storage().data());
    delete owner;
  };
  return shaped_like(tensor, alias_of(tensor, device(index), release), c10::DispatchKey::PrivateUse1);
}

// One operator on its way through the CPU.
class Call {
 public:
  explicit Call(std::string name) : name_(std::move(name)) {}

  Tensor take(const Tensor& tensor, bool written) {
    if (!is_fake(tensor)) return tensor;
    if (device_ < 0) device_ = tensor.device().index();
    (written ? writes_ : reads_).push_back(tensor.storage().data());
    aliases_.emplace_back(on_cpu(tensor), tensor);
    return aliases_.back().first;
  }
  at::Device take(at::Device asked) {
    if (asked.type() != kType) return asked;
    if (asked.has_index()) device_ = asked.index();
    return at::kCPU;
  }
  Tensor give(const Tensor& tensor) {
    if (!tensor.defined() || tensor.device().type() != at::kCPU) return tensor;
    for (const auto& [cpu, original] : aliases_) {
      if (cpu.is_same(tensor)) return original;
      if (cpu.storage().unsafeGetStorageImpl() == tensor.storage().unsafeGetStorageImpl())
        return shaped_like(tensor, original.storage(), c10::DispatchKey::PrivateUse1);
    }
    Tensor made = on_device(tensor, device());
    writes_.push_back(made.storage().data());
    return made;
  }
  void begin() const { announce(name_, device()); }
  void end() const { account(name_, device(), reads_, writes_); }

 private:
  int device() const { return device_ >= 0 ? device_ : current_device(); }

  const std::string name_;
  int device_ = -1;
  std::vector<std::pair<Tensor, Tensor>> aliases_;
  std::vector<const void*> reads_;
  std::vector<const void*> writes_;
};

c10::IValue take(Call& call, const c10::IValue& value, bool written) {
  if (value.isTensor()) return call.take(value.toTensor(), written);
  if (value.isDevice()) return call.take(value.toDevice());
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& tensor : value.toTensorVector()) list.push_back(call.take(tensor, written));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (const std::optional<Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor ? std::optional<Tensor>(call.take(*tensor, written)) : std::nullopt);
    }
    return list;
  }
  return value;
}

c10::IValue give(Call& call, const c10::IValue& value) {
  if (value.isTensor()) return call.give(value.toTensor());
  if (!value.isTensorList()) return value;
  c10::List<Tensor> list;
  for (const Tensor& tensor : value.toTensorVector()) list.push_back(call.give(tensor));
  return list;
}

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  Call call(op.schema().name());
  torch::jit::Stack on_host;
  const auto given = torch::jit::last(*stack, arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = arguments[i].alias_info();
    on_host.push_back(take(call, given[i], alias != nullptr && alias->isWrite()));
  }
  torch::jit::drop(*stack, arguments.size());
  call.begin();
  op.callBoxed(on_host);
  for (const c10::IValue& value : on_host) stack->push_back(give(call, value));
  call.end();
}

at::Device where(std::optional<at::Device> asked) {
  return asked && asked->has_index() ? *asked : device(current_device());
}

Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout>,
             std::optional<at::Device> asked, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(where(asked));
  return at::detail::empty_generic(sizes, &allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   type.value_or(at::kFloat), format);
}

Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
                     std::optional<at::Layout>, std::optional<at::Device> asked, std::optional<bool>) {
  const c10::DeviceGuard guard(where(asked));
  return at::detail::empty_strided_generic(sizes, strides, &allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           type.value_or(at::kFloat));
}

// As on CUDA: a copy between devices is work on the source's stream, which waits for the target's
// before and is waited for afterwards.
Tensor copy_from(const Tensor& source, const Tensor& target, bool non_blocking) {
  const Tensor& worker = is_fake(source) ? source : target;
  const int at = worker.device().index();
  const bool across = is_fake(source) && is_fake(target) && source.device() != target.device();
  announce("aten::copy_", at);
  if (across) wait_for(current_stream(at), current_stream(target.device().index()));
  std::vector<const void*> reads, writes;
  if (is_fake(source)) reads.push_back(source.storage().data());
  if (is_fake(target)) writes.push_back(target.storage().data());
  // Of page-locked memory the host does not wait for a copy that need not be waited for.
  if (non_blocking && is_page_locked(source.storage().data())) reads.push_back(source.storage().data());
  if (non_blocking && is_page_locked(target.storage().data())) writes.push_back(target.storage().data());
  {
    const at::NoGradGuard no_grad;
    (is_fake(target) ? on_cpu(target) : target).copy_(is_fake(source) ? on_cpu(source) : source);
  }
  account("aten::copy_", at, reads, writes);
  if (across) wait_for(current_stream(target.device().index()), current_stream(at));
  return target;
}

Tensor copy_from_and_resize(const Tensor& source, const Tensor& target) {
  return copy_from(source, target, false);
}

at::Scalar item(const Tensor& tensor) {
  Call call("aten::_local_scalar_dense");
  const Tensor host = call.take(tensor, false);
  call.begin();
  call.end();
  return at::native::_local_scalar_dense_cpu(host);
}

const Tensor& resize(const Tensor& tensor, at::IntArrayRef sizes, std::optional<at::MemoryFormat>) {
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(sizes);
  const size_t bytes = static_cast<size_t>(impl->numel()) * tensor.element_size();
  if (tensor.storage().nbytes() < bytes) {
    const c10::DeviceGuard guard(tensor.device());
    c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
    c10::DataPtr grown = allocator().allocate(bytes);
    std::memcpy(grown.get(), storage.data(), storage.nbytes());
    storage.set_data_ptr_noswap(std::move(grown));
    storage.set_nbytes(bytes);
  }
  return tensor;
}

// LibTorch sends the convolutions of foreign devices to operators of their own.
Tensor convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                   at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                   at::IntArrayRef output_padding, int64_t groups) {
  Call call("aten::convolution");
  const Tensor x = call.take(input, false);
  const Tensor w = call.take(weight, false);
  std::optional<Tensor> b;
  if (bias.has_value() && bias->defined()) b = call.take(*bias, false);
  call.begin();
  const Tensor made =
      call.give(at::convolution(x, w, b, stride, padding, dilation, transposed, output_padding, groups));
  call.end();
  return made;
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(const Tensor& gradient, const Tensor& input,
                                                        const Tensor& weight, at::IntArrayRef stride,
                                                        at::IntArrayRef padding, at::IntArrayRef dilation,
                                                        bool transposed, at::IntArrayRef output_padding,
                                                        int64_t groups, std::array<bool, 3> wanted) {
  Call call("aten::convolution_backward");
  const Tensor g = call.take(gradient, false);
  const Tensor x = call.take(input, false);
  const Tensor w = call.take(weight, false);
  call.begin();
  const auto [dx, dw, db] =
      at::convolution_backward(g, x, w, at::OptionalIntArrayRef({weight.size(0)}), stride, padding, dilation,
                               transposed, output_padding, groups, wanted);
  auto made = std::make_tuple(call.give(dx), call.give(dw), call.give(db));
  call.end();
  return made;
}

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("resize_", resize);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", item);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("convolution_overrideable", convolution);
  m.impl("convolution_backward_overrideable", convolution_backward);
}

}  // namespace overdrive::test::fake
