#include "test/parity/fuzz/observe.h"

#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <c10/util/Type.h>

#include "test/parity/fuzz/thrown.h"

namespace overdrive::fuzz {
namespace {

uint64_t hash_bytes(uint64_t hash, const char* bytes, size_t n) {
  for (size_t i = 0; i < n; ++i) hash = (hash ^ static_cast<unsigned char>(bytes[i])) * 1099511628211ULL;
  return hash;
}

// Elements in logical order, through the strides; conj and neg bits are told apart by the flags.
std::string dense_bits(const Tensor& t) {
  if (t._is_zerotensor()) return "zero tensor";
  const auto* data = static_cast<const char*>(t.unsafeGetTensorImpl()->storage().data());
  const size_t item = t.element_size();
  const int64_t dims = t.dim();
  std::vector<int64_t> at(static_cast<size_t>(dims), 0);
  uint64_t hash = 14695981039346656037ULL;
  double first = 0;
  for (int64_t i = 0, n = t.numel(); i < n; ++i) {
    int64_t offset = t.storage_offset();
    for (int64_t d = 0; d < dims; ++d) offset += at[static_cast<size_t>(d)] * t.stride(d);
    const char* element = data + static_cast<size_t>(offset) * item;
    hash = hash_bytes(hash, element, item);
    if (i == 0 && t.scalar_type() == at::kFloat) first = *reinterpret_cast<const float*>(element);
    if (i == 0 && t.scalar_type() == at::kDouble) first = *reinterpret_cast<const double*>(element);
    for (int64_t d = dims - 1; d >= 0; --d) {
      if (++at[static_cast<size_t>(d)] < t.size(d)) break;
      at[static_cast<size_t>(d)] = 0;
    }
  }
  char text[64];
  std::snprintf(text, sizeof text, "%016llx (%.9g…)", static_cast<unsigned long long>(hash), first);
  return text;
}

// Sizes and strides, which nested and sparse tensors do not tell.
std::string look_of(const at::TensorBase& t) {
  if (t.layout() != at::kStrided || t.is_nested()) return "one that is not dense";
  return c10::str(t.sizes(), " strides ", t.strides());
}

std::string flags(const Tensor& t) {
  std::string text;
  if (t.requires_grad()) text += " requires_grad";
  if (t.is_conj()) text += " conj";
  if (t.is_neg()) text += " neg";
  if (!t.is_inference()) text += c10::str(" v", t._version());
  if (t.is_view()) text += " view of " + look_of(t._base());
  // The accessor may rebuild the node of a view; the field does not.
  if (const auto* node = torch::autograd::impl::grad_fn_unsafe(t)) text += " " + node->name();
  return text;
}

}  // namespace

std::string describe(const Tensor& t) {
  if (!t.defined()) return "undefined";
  const std::string type = c10::toString(t.scalar_type());
  if (t.is_nested()) {
    at::AutoDispatchBelowAutograd below;
    std::string text = "nested " + type + flags(t) + " {";
    for (const Tensor& part : t.unbind()) text += describe(part) + "; ";
    return text + "}";
  }
  if (t.layout() == at::kSparse) {
    return c10::str("sparse ", type, " ", t.sizes(), t.is_coalesced() ? " coalesced" : "", flags(t), " {",
                    describe(t._indices()), "; ", describe(t._values()), "}");
  }
  if (t.layout() == at::kSparseCsr) {
    at::AutoDispatchBelowAutograd below;
    return c10::str("csr ", type, " ", t.sizes(), flags(t), " {", describe(t.crow_indices()), "; ",
                    describe(t.col_indices()), "; ", describe(t.values()), "}");
  }
  return c10::str(type, " ", t.sizes(), " strides ", t.strides(), " +", t.storage_offset(), flags(t), " = ",
                  dense_bits(t));
}

std::string StorageNames::name(const Tensor& t) {
  if (!t.defined()) return "-";
  if (t.is_sparse()) return name(t._indices()) + name(t._values());
  if (!t.has_storage()) return "-";
  const void* storage = t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  return c10::str("s", names_.emplace(storage, names_.size()).first->second);
}

std::string describe(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& e) {
    return c10::demangle(typeid(e).name()) + ": " + e.msg();
  } catch (const std::exception& e) {
    return c10::demangle(typeid(e).name()) + ": " + e.what();
  } catch (const Thrown& e) {
    return c10::str("Thrown ", e.value);
  } catch (...) {
    return "something else";
  }
}

std::string thread_state() {
  const auto& state = c10::AutogradState::get_tls_state();
  const auto keys = c10::impl::tls_local_dispatch_key_set();
  const auto& hooks = at::SavedTensorDefaultHooks::get_tls_state();
  return c10::str("grad ", state.get_grad_mode(), " fw ", state.get_fw_grad_mode(), " inference ",
                  state.get_inference_mode(), " threads ", state.get_multithreading_enabled(), " replay ",
                  state.get_view_replay_enabled(), " autocast ", at::autocast::is_autocast_enabled(at::kCPU),
                  " keys ", keys.included_.raw_repr(), "/", keys.excluded_.raw_repr(), " hooks ",
                  hooks.disabled_error_message.value_or("on"), hooks.stack.size());
}

}  // namespace overdrive::fuzz
