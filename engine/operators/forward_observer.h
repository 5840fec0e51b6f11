// A thread's callback for each operator that its program calls, off inside backwards: there LibTorch runs nodes
// in another way when somebody observes them. A plain value that a unit keeps in a thread_local, because a late
// tensor's destructor may run a backward after the thread's destructors. For its thread only.
#pragma once

#include <ATen/record_function.h>

namespace overdrive::engine {

class ForwardObserver {
 public:
  bool is_on() const { return on_; }
  bool is_paused() const { return pauses_ != 0; }

  void start(const at::RecordFunctionCallback& callback) {
    handle_ =
        at::addThreadLocalCallback(at::RecordFunctionCallback(callback).scopes({at::RecordScope::FUNCTION}));
    if (is_paused()) at::disableCallback(handle_);
    on_ = true;
  }
  void stop() {
    at::removeCallback(handle_);
    on_ = false;
  }
  // In pairs, one inside the other.
  void pause() {
    if (pauses_++ == 0 && on_) at::disableCallback(handle_);
  }
  void resume() {
    if (--pauses_ == 0 && on_) at::reenableCallback(handle_);
  }

 private:
  at::CallbackHandle handle_ = 0;
  int pauses_ = 0;
  bool on_ = false;
};

}  // namespace overdrive::engine
