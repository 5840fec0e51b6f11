#include "hooks/hook_stack.h"

#include "engine/engine.h"
#include "engine/overdrive_engine.h"
#include "hooks/hook_scope.h"
#include "hooks/hooked_save.h"
#include "hooks/inside_hook.h"

#include <ATen/SavedTensorHooks.h>

#include <string_view>
#include <type_traits>
#include <utility>

namespace overdrive::hooks {
namespace {

constexpr std::string_view kKindName = "OVERDRIVE_SAVED_TENSOR_HOOKS";

// Older versions of the host number the kinds and leave none to others; theirs are few.
template <typename Kind>
constexpr Kind own_kind() {
  if constexpr (std::is_enum_v<Kind>) {
    return static_cast<Kind>(0xd5);
  } else {
    return Kind(&kKindName);
  }
}
constexpr auto kKind = own_kind<c10::DebugInfoKind>();

thread_local int inside_hook_depth = 0;

using HostHooks = at::SavedTensorDefaultHooks;

// What the engine asks for every tensor that an op saves.
std::unique_ptr<torch::autograd::SavedVariableHooks> hooks_for_saved_tensor() {
  HookScope* scope = HookScope::innermost();
  if (scope == nullptr || scope->hooks == nullptr || InsideHook::anywhere()) return nullptr;
  if (!HostHooks::get_tls_state().stack.empty()) {
    TORCH_WARN_ONCE(
        "Saved-tensor hooks of Overdrive and of the host (torch.autograd.graph.saved_tensors_hooks, "
        "save_on_cpu) "
        "are active at once on this thread. Overdrive's are used, the host's are not called.");
  }
  return std::make_unique<HookedSave>(scope->shared_from_this());
}

}  // namespace

int& InsideHook::depth() { return inside_hook_depth; }

HookScope* HookScope::innermost() {
  auto* scope = static_cast<HookScope*>(c10::ThreadLocalDebugInfo::get(kKind));
  while (scope != nullptr && !scope->open_.load(std::memory_order_relaxed)) scope = scope->around_.get();
  return scope;
}

void HookScope::open() {
  c10::ThreadLocalDebugInfo::_push(kKind, shared_from_this());
  place_ = c10::ThreadLocalDebugInfo::current();
}

// Others may have put something on top, a profiler for one, that ends after us: then our place in the list
// stays until theirs goes, and only stops to count.
void HookScope::close() {
  if (c10::ThreadLocalDebugInfo::current() == place_) {
    c10::ThreadLocalDebugInfo::_pop(kKind);
  } else {
    open_.store(false, std::memory_order_relaxed);
  }
  place_.reset();
}

bool HookScope::wants(const at::Tensor& tensor, const SaveInfo& info) {
  const InsideHook inside;
  const std::optional<uint64_t> key = hooks->cache_key();
  if (!key) return hooks->wants(tensor, info);
  at::DimVector kind(tensor.sizes());
  kind.push_back(static_cast<int64_t>(*key));
  kind.push_back(static_cast<int64_t>(info.dtype) << 32 | static_cast<int64_t>(tensor.device().type()) << 16 |
                 static_cast<int64_t>(tensor.device().index() + 1) << 1 | static_cast<int64_t>(info.parameter));
  {
    const base::MutexLock lock(mutex_);
    if (const auto found = decisions_.find(kind); found != decisions_.end()) return found->second;
  }
  const bool decision = hooks->wants(tensor, info);
  const base::MutexLock lock(mutex_);
  decisions_[kind] = decision;
  return decision;
}

ScopedHooks::ScopedHooks(HooksPtr hooks, HookOptions options) {
  if (const auto& message = HostHooks::get_disabled_error_message()) TORCH_CHECK(false, *message);
  TORCH_CHECK(
      engine::installed(),
      "Saved-tensor hooks reach LibTorch's ops through Overdrive's engine, which is not the default engine "
      "now (that is ",
      engine::default_engine_owner(), "). Call overdrive::install() first.");
  engine::OverdriveEngine::get().set_saved_hooks_source(&hooks_for_saved_tensor);
  HookScope* around = HookScope::innermost();
  scope_ =
      std::make_shared<HookScope>(std::move(hooks), options, around ? around->shared_from_this() : nullptr);
  scope_->open();
  inside_hooks_ = std::exchange(InsideHook::depth(), 0);
}

ScopedHooks::~ScopedHooks() {
  InsideHook::depth() = inside_hooks_;
  scope_->close();
}

HooksPtr active_hooks() {
  const HookScope* scope = HookScope::innermost();
  return scope != nullptr && !InsideHook::anywhere() ? scope->hooks : nullptr;
}

DisabledHooks::DisabledHooks(const std::string& message) : before_(HostHooks::get_disabled_error_message()) {
  TORCH_CHECK(active_hooks() == nullptr, message);
  HostHooks::disable(message);
}

DisabledHooks::~DisabledHooks() {
  if (before_) {
    HostHooks::disable(*before_);
  } else {
    HostHooks::enable();
  }
}

}  // namespace overdrive::hooks
