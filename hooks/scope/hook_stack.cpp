#include "hooks/scope/hook_stack.h"

#include "engine/base/counters.h"
#include "engine/engine.h"
#include "engine/overdrive_engine.h"
#include "hooks/interface/decision_cache.h"
#include "hooks/interface/inside_hook.h"
#include "hooks/memory/look_ahead.h"
#include "hooks/scope/hook_scope.h"
#include "hooks/scope/hooked_save.h"

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
  if (scope->has_host_hooks_inside()) return nullptr;
  return std::make_unique<HookedSave>(scope->shared_from_this());
}

}  // namespace

int& InsideHook::depth() { return inside_hook_depth; }

HookScope* HookScope::innermost() {
  auto* scope = static_cast<HookScope*>(c10::ThreadLocalDebugInfo::get(kKind));
  while (scope != nullptr && !scope->open_.load(std::memory_order_relaxed)) scope = scope->around_.get();
  return scope;
}

bool HookScope::has_host_hooks_inside() const {
  return HostHooks::get_tls_state().stack.size() > host_hooks_around_;
}

void HookScope::open() {
  host_hooks_around_ = HostHooks::get_tls_state().stack.size();
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

HookScope::HookScope(HooksPtr hooks_here, const HookOptions& options_here,
                     std::optional<Schedule> schedule_here, std::shared_ptr<HookScope> around)
    : hooks(std::move(hooks_here)),
      options(options_here),
      schedule(schedule_here),
      pending(schedule_here.value_or(Schedule{})),
      around_(std::move(around)) {}

PackUnit::Timing HookScope::timing() const {
  return {.pack_later = schedule && schedule->window_tensors > 0 && schedule->window_bytes > 0,
          .fetch_early = schedule && schedule->depth > 0,
          .may_share = options.share};
}

bool HookScope::wants(const at::Tensor& tensor, const SaveInfo& info) {
  const std::optional<uint64_t> key_of_hook = hooks->cache_key();
  if (!key_of_hook) return hooks->wants(tensor, info);
  DecisionCache& known = *hooks->decisions_;
  const DecisionCache::Key key = DecisionCache::key_of(tensor, info, *key_of_hook);
  if (const std::optional<bool> decision = known.find(key)) {
    engine::count(engine::Count::kDecisionHits);
    return *decision;
  }
  engine::count(engine::Count::kDecisionMisses);
  const bool decision = hooks->wants(tensor, info);
  known.note(key, decision);
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
  std::optional<Schedule> schedule = hooks != nullptr ? hooks->schedule() : std::nullopt;
  if (schedule && schedule->depth > 0) engine::OverdriveEngine::get().set_run_observer_source(&look_ahead);
  HookScope* around = HookScope::innermost();
  scope_ = std::make_shared<HookScope>(std::move(hooks), options, schedule,
                                       around ? around->shared_from_this() : nullptr);
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
