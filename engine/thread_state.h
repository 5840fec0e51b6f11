// The host's thread-local modes during a run. Stock sets them anew for every node, so that
// what one node or hook leaves behind (grad mode on, a dispatch key, a warning handler ...) is
// gone for the next. A run sets them once, looks after every node whether they still are what they
// were, and repairs them when not. Used by the run's thread only.
#pragma once

#include <ATen/ThreadLocalState.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>
#include <optional>

namespace c10 {
class WarningHandler;
}

namespace overdrive::engine {

// What can be compared without a copy of everything.
struct ThreadModes {
  uint64_t included_keys;
  uint64_t excluded_keys;
  uint32_t autograd_bits;
  // Only user code changes these.
  bool record_function_on;
  size_t record_function_callbacks;
  bool saved_hooks_on;
  size_t saved_hooks;
  bool reapply_views;
  int autocast_cpu_dtype;
  int autocast_gpu_dtype;
  const void* debug_info;
  const void* functorch;
  c10::WarningHandler* warning_handler;

  static ThreadModes read();
  static uint32_t bits_of(const c10::AutogradState& state) {
    return static_cast<uint32_t>(state.get_grad_mode()) |
           static_cast<uint32_t>(state.get_inference_mode()) << 1 |
           static_cast<uint32_t>(state.get_fw_grad_mode()) << 2 |
           static_cast<uint32_t>(state.get_multithreading_enabled()) << 3 |
           static_cast<uint32_t>(state.get_view_replay_enabled()) << 4 |
           static_cast<uint32_t>(state.get_grad_layout_enforcement_enabled()) << 5;
  }
  bool operator==(const ThreadModes&) const = default;
};

class ThreadState {
 public:
  enum class Watch {
    kHostCode,  // only LibTorch's own nodes run: dispatch keys and autograd modes are enough
    kUserCode,  // everything that stock restores
  };

  // Notes the modes of this moment as the run's, with the grad mode given, and enters that grad
  // mode. `whole`: a copy of the same state if the caller has one that outlives the run.
  ThreadState(Watch watch, bool grad_mode, const at::ThreadLocalState* whole = nullptr);
  // Gives the caller its grad mode back; when an error passes, all the rest too.
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

  // The state as a whole if this thread's modes are the run's but for the grad mode, else null: lets a
  // nested run do without a copy of its own.
  const at::ThreadLocalState* whole_if_unchanged() const;
  const at::ThreadLocalState* whole() const { return whole_; }

 private:
  bool quick_look_differs() const {
    return keys_->included_ != modes_.included_keys || keys_->excluded_ != modes_.excluded_keys ||
           ThreadModes::bits_of(*autograd_) != modes_.autograd_bits;
  }
  void repair();

  // Thread-locals of this thread, found once.
  const c10::impl::PODLocalDispatchKeySet* keys_;
  c10::AutogradState* autograd_;
  const Watch watch_;
  const bool grad_mode_;
  const bool grad_mode_before_;
  const int exceptions_before_;
  ThreadModes modes_{};
  std::optional<c10::AutogradState> autograd_before_;  // kHostCode
  const at::ThreadLocalState* whole_ = nullptr;        // kUserCode
  std::optional<at::ThreadLocalState> own_;
};

}  // namespace overdrive::engine
