#include "hooks/scope/hook_stack.h"

#include "engine/check_installed.h"
#include "engine/engine.h"
#include "engine/overdrive_engine.h"
#include "hooks/interface/hook_calls.h"
#include "hooks/memory/fetch_ahead.h"
#include "hooks/scope/hook_scope.h"
#include "hooks/scope/hooked_save.h"

#include <ATen/SavedTensorHooks.h>

#include <utility>

namespace overdrive::hooks {
namespace {
using HostHooks = at::SavedTensorDefaultHooks;

// The engine calls this for every tensor that an operator saves.
std::unique_ptr<torch::autograd::SavedVariableHooks> hooks_for_saved_tensor() {
  HookScope* scope = HookScope::innermost();
  if (scope == nullptr || scope->hooks == nullptr || InsideHook::anywhere()) return nullptr;
  if (scope->has_host_hooks_inside()) return nullptr;
  return std::make_unique<HookedSave>(scope->shared_from_this());
}

}  // namespace

ScopedHooks::ScopedHooks(HooksPtr hooks, HookOptions options) {
  if (const auto& message = HostHooks::get_disabled_error_message()) TORCH_CHECK(false, *message);
  engine::check_installed("Saved-tensor hooks reach LibTorch's ops through Overdrive's engine");
  engine::OverdriveEngine::get().set_saved_hooks_source(&hooks_for_saved_tensor);
  std::optional<Schedule> schedule = hooks != nullptr ? hooks->schedule() : std::nullopt;
  if (schedule && schedule->depth > 0) engine::OverdriveEngine::get().set_run_watch_source(&fetch_ahead_in);
  HookScope* around = HookScope::innermost();
  scope_ = std::make_shared<HookScope>(std::move(hooks), options, around ? around->shared_from_this() : nullptr,
                                       schedule);
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
