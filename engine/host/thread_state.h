// The host's thread-local modes during a run. Stock sets all modes anew for every node, so a change by one node
// (grad mode, a dispatch key, a warning handler ...) does not reach the next node. A run sets the modes once,
// compares them after every node, and repairs them when they differ. On the stack of the run; its thread only.
#pragma once

#include <ATen/FuncTorchTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/record_function.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

namespace overdrive::engine {

// This thread's modes that can be read in place. Looked up once a run, because a look-up of a
// thread-local costs more than a read.
struct ThreadLocals {
  ThreadLocals();

  const c10::impl::PODLocalDispatchKeySet& keys;
  c10::AutogradState& autograd;
  const at::RecordFunctionTLS& record_function;
  const at::impl::SavedTensorDefaultHooksTLS& saved_hooks;
  const std::unique_ptr<at::functorch::FuncTorchTLSBase>& functorch;
};

// The modes that stock restores, in a form that compares without a copy of the whole state.
struct ThreadModes {
  uint64_t included_keys = 0;
  uint64_t excluded_keys = 0;
  uint32_t autograd_bits = 0;
  // Only user code changes these.
  bool record_function_on = true;
  bool saved_hooks_on = true;
  bool reapply_views = false;
  at::ScalarType autocast_cpu_type = at::ScalarType::Undefined;
  at::ScalarType autocast_gpu_type = at::ScalarType::Undefined;
  uint64_t record_function_callbacks = 0;  // a mark of the callbacks and their switches
  size_t saved_hooks = 0;
  const void* debug_info = nullptr;
  const void* functorch = nullptr;
  c10::WarningHandler* warning_handler = nullptr;

  static ThreadModes read(const ThreadLocals& locals);
  static uint64_t mark_of(const at::RecordFunctionTLS& record_function) {
    uint64_t mark = 0;
    for (const auto& callback : record_function.sorted_tls_callbacks_) {
      mark = mark * 31 + 2 * callback.handle_ + static_cast<uint64_t>(callback.enabled_);
    }
    return mark;
  }
  // Older versions of the host have no such switch: always on.
  template <typename State>
  static bool enforces_grad_layout(const State& state) {
    if constexpr (requires { state.get_grad_layout_enforcement_enabled(); }) {
      return state.get_grad_layout_enforcement_enabled();
    } else {
      return true;
    }
  }
  static uint32_t bits_of(const c10::AutogradState& state) {
    return static_cast<uint32_t>(state.get_grad_mode()) |
           static_cast<uint32_t>(state.get_inference_mode()) << 1 |
           static_cast<uint32_t>(state.get_fw_grad_mode()) << 2 |
           static_cast<uint32_t>(state.get_multithreading_enabled()) << 3 |
           static_cast<uint32_t>(state.get_view_replay_enabled()) << 4 |
           static_cast<uint32_t>(enforces_grad_layout(state)) << 5;
  }
  bool operator==(const ThreadModes&) const = default;
};

class ThreadState {
 public:
  enum class Code {
    kHost,  // dispatch keys and autograd modes: enough where only LibTorch's own nodes run
    kUser,  // everything that stock restores
  };

  // Takes the current modes, with `grad_mode`, as the run's modes, and enters that grad mode. `whole`: a copy
  // of the same state that outlives the run, if the caller has one.
  ThreadState(Code code, bool grad_mode, const at::ThreadLocalState* whole = nullptr);
  // Restores the caller's grad mode. When an error passes, restores all other modes too.
  ~ThreadState();
  ThreadState(const ThreadState&) = delete;
  ThreadState& operator=(const ThreadState&) = delete;

  // After a node of LibTorch's own without hooks.
  void restore_after_host_code() {
    if (quick_look_differs()) [[unlikely]]
      repair();
  }
  // After any other node, and after final callbacks.
  void restore_after_user_code();
  // After a node of a run. `user_code`: code from outside LibTorch may run in the run.
  void restore_after_node(bool user_code) {
    if (user_code) {
      restore_after_user_code();
    } else {
      restore_after_host_code();
    }
  }

  // The whole state, if this thread's modes equal the run's apart from the grad mode; otherwise null. A nested
  // run then needs no copy of its own.
  const at::ThreadLocalState* whole_if_unchanged() const;
  const at::ThreadLocalState* whole() const { return whole_; }

 private:
  bool quick_look_differs() const {
    return locals_.keys.included_ != modes_.included_keys || locals_.keys.excluded_ != modes_.excluded_keys ||
           ThreadModes::bits_of(locals_.autograd) != modes_.autograd_bits;
  }
  // Whether the run is inside a functorch layer. A layer that user code leaves on top lies in the same object,
  // under the same keys, so a comparison does not find it.
  bool is_in_layer() const {
    constexpr c10::DispatchKeySet kLayers(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
    return (modes_.included_keys & kLayers.raw_repr()) != 0;
  }
  void repair();

  const ThreadLocals locals_;
  const Code code_;
  const bool grad_mode_;
  const bool grad_mode_before_;
  const int exceptions_before_;
  ThreadModes modes_{};
  std::optional<c10::AutogradState> autograd_before_;  // Code::kHost
  const at::ThreadLocalState* whole_ = nullptr;        // Code::kUser
  std::optional<at::ThreadLocalState> own_;
};

// Runs a function on a new thread in the caller's modes, and waits for the thread to end. For very deep nests
// when the user prefers threads to fresh stacks. An error of `body` comes out here. When the system refuses a
// thread, `body` runs on the caller.
void call_on_new_thread(const std::function<void()>& body);

}  // namespace overdrive::engine
