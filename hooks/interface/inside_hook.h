// While one lives, tensors that are saved on this thread are not given to hooks: they are saved by a hook's
// own code. A scope that this code opens counts all the same.
#pragma once

namespace overdrive::hooks {

class InsideHook {
 public:
  InsideHook() : depth_(depth()) { ++depth_; }
  ~InsideHook() { --depth_; }
  InsideHook(const InsideHook&) = delete;
  InsideHook& operator=(const InsideHook&) = delete;

  static bool anywhere() { return depth() != 0; }

 private:
  friend class ScopedHooks;
  static int& depth();

  int& depth_;  // looked up once
};

}  // namespace overdrive::hooks
