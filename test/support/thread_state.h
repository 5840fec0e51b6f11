// The thread-local state that an engine must hand from node to node as stock does: a
// description of it, and every way to leave it changed. Of the calling thread only.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace overdrive::test {

// One line that names grad mode, inference mode, dispatch keys, autocast and so on.
std::string thread_state();

// One thing that user code can leave behind in the thread.
struct Leak {
  std::string name;
  std::function<void()> leave;
};
const std::vector<Leak>& leaks();

// Adds and takes away a functorch layer (vmap of size 2, jvp).
class FunctorchLayer {
 public:
  enum class Kind { kVmap, kJvp };
  explicit FunctorchLayer(Kind kind);
  ~FunctorchLayer();
  FunctorchLayer(const FunctorchLayer&) = delete;
  FunctorchLayer& operator=(const FunctorchLayer&) = delete;
  int64_t level() const { return level_; }

 private:
  int64_t level_;
};

}  // namespace overdrive::test
