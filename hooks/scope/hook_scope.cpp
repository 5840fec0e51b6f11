#include "hooks/scope/hook_scope.h"

#include "engine/base/saved_hooks_slot.h"

#include <ATen/SavedTensorHooks.h>

#include <string_view>
#include <type_traits>
#include <utility>

namespace overdrive::hooks {
namespace {
constexpr std::string_view kKindName = "OVERDRIVE_SAVED_TENSOR_HOOKS";

// Older versions of the host number the kinds and leave none to others; their kinds are few.
template <typename Kind>
constexpr Kind own_kind() {
  if constexpr (std::is_enum_v<Kind>) {
    return static_cast<Kind>(0xd5);
  } else {
    return Kind(&kKindName);
  }
}
constexpr auto kKind = own_kind<c10::DebugInfoKind>();

}  // namespace

HookScope::HookScope(HooksPtr hooks_here, const HookOptions& options_here, std::shared_ptr<HookScope> around,
                     std::optional<Schedule> schedule_here)
    : hooks(std::move(hooks_here)),
      options(options_here),
      schedule(schedule_here),
      pending(schedule_here.value_or(Schedule{})),
      around_(std::move(around)) {}

HookScope* HookScope::innermost() {
  auto* scope = static_cast<HookScope*>(c10::ThreadLocalDebugInfo::get(kKind));
  while (scope != nullptr && !scope->open_.load(std::memory_order_relaxed)) scope = scope->around_.get();
  return scope;
}

bool HookScope::has_host_hooks_inside() const {
  return at::SavedTensorDefaultHooks::get_tls_state().stack.size() > host_hooks_around_;
}

void HookScope::open() {
  base::SavedHooksSlot::fill([] {
    const HookScope* scope = innermost();
    return scope != nullptr && scope->hooks != nullptr;
  });
  host_hooks_around_ = at::SavedTensorDefaultHooks::get_tls_state().stack.size();
  c10::ThreadLocalDebugInfo::_push(kKind, shared_from_this());
  place_ = c10::ThreadLocalDebugInfo::current();
}

// Another user of the list, a profiler for one, may have put an entry on top that ends later. Then our entry
// stays until that one goes, and no longer counts.
void HookScope::close() {
  if (c10::ThreadLocalDebugInfo::current() == place_) {
    c10::ThreadLocalDebugInfo::_pop(kKind);
  } else {
    open_.store(false, std::memory_order_relaxed);
  }
  place_.reset();
}

PackUnit::Timing HookScope::timing() const {
  return {.pack_later = schedule && schedule->window_tensors > 0 && schedule->window_bytes > 0,
          .fetch_early = schedule && schedule->depth > 0,
          .may_share = options.share};
}

}  // namespace overdrive::hooks
