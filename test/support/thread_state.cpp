#include "test/support/thread_state.h"

#include "test/support/pch.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/record_function.h>
#include <c10/core/AutogradState.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace overdrive::test {

namespace {

namespace functorch = at::functorch;

struct QuietHandler final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};
QuietHandler& quiet_handler() {
  static auto* handler = new QuietHandler;
  return *handler;
}

struct Info final : c10::DebugInfoBase {};

c10::AutogradState& state() { return c10::AutogradState::get_tls_state(); }

// Older versions of the host have no such switch.
template <typename State>
bool enforces_grad_layout(const State& state) {
  if constexpr (requires { state.get_grad_layout_enforcement_enabled(); }) {
    return state.get_grad_layout_enforcement_enabled();
  } else {
    return true;
  }
}
template <typename State>
void flip_grad_layout(State& state) {
  if constexpr (requires { state.set_grad_layout_enforcement_enabled(true); }) {
    state.set_grad_layout_enforcement_enabled(!enforces_grad_layout(state));
  }
}

void flip_included(c10::DispatchKey key) {
  c10::impl::tls_set_dispatch_key_included(key, !c10::impl::tls_is_dispatch_key_included(key));
}
void flip_excluded(c10::DispatchKey key) {
  c10::impl::tls_set_dispatch_key_excluded(key, !c10::impl::tls_is_dispatch_key_excluded(key));
}
void flip_saved_tensor_hooks() {
  at::SavedTensorDefaultHooks::is_enabled() ? at::SavedTensorDefaultHooks::disable("left off by a test", false)
                                            : at::SavedTensorDefaultHooks::enable();
}
void flip_autocast() {
  at::autocast::set_autocast_enabled(at::kCPU, !at::autocast::is_autocast_enabled(at::kCPU));
}
void flip_functionalize() {
  const bool now = at::functionalization::impl::getFunctionalizationReapplyViewsTLS();
  at::functionalization::impl::setFunctionalizationReapplyViewsTLS(!now);
}
void push_layer() {
  functorch::initAndPushDynamicLayer(functorch::TransformType::Jvp, std::nullopt, std::nullopt, std::nullopt,
                                     true);
}

}  // namespace

std::string thread_state() {
  const auto keys = c10::impl::tls_local_dispatch_key_set();
  const auto& message = at::SavedTensorDefaultHooks::get_disabled_error_message();
  std::ostringstream text;
  text << "grad=" << state().get_grad_mode() << " fw_grad=" << state().get_fw_grad_mode()
       << " inference=" << state().get_inference_mode()
       << " multithreading=" << state().get_multithreading_enabled()
       << " view_replay=" << state().get_view_replay_enabled() << " layout=" << enforces_grad_layout(state())
       << " autocast=" << at::autocast::is_autocast_enabled(at::kCPU)
       << " dtype=" << at::autocast::get_autocast_dtype(at::kCPU)
       << " cache=" << at::autocast::is_autocast_cache_enabled() << " included=" << keys.included_
       << " excluded=" << keys.excluded_ << " hooks=" << message.value_or("on")
       << " debug_info=" << (c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::TEST_INFO) != nullptr)
       << " record=" << at::isRecordFunctionEnabled()
       << " reapply=" << at::functionalization::impl::getFunctionalizationReapplyViewsTLS()
       << " layers=" << functorch::getDynamicLayerStack().size()
       << " quiet=" << (c10::WarningUtils::get_warning_handler() == &quiet_handler());
  return text.str();
}

const std::vector<Leak>& leaks() {
  static const auto* all = new std::vector<Leak>{
      {"grad mode", [] { state().set_grad_mode(!state().get_grad_mode()); }},
      {"inference mode", [] { state().set_inference_mode(!state().get_inference_mode()); }},
      {"forward-grad mode", [] { state().set_fw_grad_mode(!state().get_fw_grad_mode()); }},
      {"multithreading", [] { state().set_multithreading_enabled(!state().get_multithreading_enabled()); }},
      {"view replay", [] { state().set_view_replay_enabled(!state().get_view_replay_enabled()); }},
      {"grad layout", [] { flip_grad_layout(state()); }},
      {"autocast", flip_autocast},
      {"autocast dtype", [] { at::autocast::set_autocast_dtype(at::kCPU, at::kHalf); }},
      {"autocast cache", [] { at::autocast::set_autocast_cache_enabled(false); }},
      {"included key", [] { flip_included(c10::DispatchKey::TESTING_ONLY_GenericMode); }},
      {"excluded key", [] { flip_excluded(c10::DispatchKey::Negative); }},
      {"warning handler", [] { c10::WarningUtils::set_warning_handler(&quiet_handler()); }},
      {"saved-tensor hooks", flip_saved_tensor_hooks},
      {"debug info",
       [] { c10::ThreadLocalDebugInfo::_push(c10::DebugInfoKind::TEST_INFO, std::make_shared<Info>()); }},
      {"record function", [] { at::enableRecordFunction(!at::isRecordFunctionEnabled()); }},
      {"functionalization", flip_functionalize},
      {"functorch layer", push_layer},
  };
  return *all;
}

FunctorchLayer::FunctorchLayer(Kind kind)
    : level_(kind == Kind::kVmap
                 ? functorch::initAndPushDynamicLayer(functorch::TransformType::Vmap, c10::SymInt(2),
                                                      functorch::RandomnessType::Different)
                 : functorch::initAndPushDynamicLayer(functorch::TransformType::Jvp, std::nullopt, std::nullopt,
                                                      std::nullopt, true)) {}
FunctorchLayer::~FunctorchLayer() { functorch::popDynamicLayerAndDeleteMetadata(); }

}  // namespace overdrive::test
