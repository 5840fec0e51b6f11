#include "forward_ad/layers/host_level.h"

#include "engine/base/no_destructor.h"
#include "engine/base/process_mutex.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/forward_grad.h>

#include <memory>

namespace overdrive::forward_ad::host_level {
namespace {
using StockLevel = torch::autograd::ForwardADLevel;

struct State {
  base::ProcessMutex mutex{"LibTorch's dual level"};
  int users OVERDRIVE_GUARDED_BY(mutex) = 0;
  bool borrowed OVERDRIVE_GUARDED_BY(mutex) = false;
  bool plain OVERDRIVE_GUARDED_BY(mutex) = false;  // a bare level was opened since it was entered
  // Weak: a second owner would keep the tangents alive when the program leaves its level.
  std::weak_ptr<StockLevel> level OVERDRIVE_GUARDED_BY(mutex);

  void check() OVERDRIVE_REQUIRES(mutex) {
    auto ours = level.lock();
    TORCH_CHECK(ours != nullptr && ours == StockLevel::try_get_by_idx(0), "LibTorch's dual level 0, which ",
                users, " open forward AD level(s) of Overdrive ",
                borrowed ? "had borrowed from the program" : "had entered",
                ", was exited by somebody else. Their tangents are gone; close these levels.");
  }

  void enter() OVERDRIVE_REQUIRES(mutex) {
    auto existing = StockLevel::try_get_by_idx(0);
    borrowed = existing != nullptr;
    if (!borrowed) existing = StockLevel::get_by_idx(torch::autograd::forward_ad::enter_dual_level());
    level = existing;
    plain = false;
  }
};

State& state() {
  static base::NoDestructor<State> instance;
  return *instance;
}

}  // namespace

void acquire() {
  State& s = state();
  base::MutexLock lock(s.mutex);
  if (s.users == 0) {
    s.enter();
  } else {
    s.check();
  }
  ++s.users;
}

bool try_acquire_alone() {
  State& s = state();
  base::MutexLock lock(s.mutex);
  if (s.users > 0 || StockLevel::try_get_by_idx(0)) return false;
  s.enter();
  s.plain = true;
  ++s.users;
  return true;
}

bool has_plain_tangents() {
  if (!StockLevel::try_get_by_idx(0)) return false;
  State& s = state();
  base::MutexLock lock(s.mutex);
  return s.users == 0 || s.borrowed || s.plain;
}

void release() noexcept {
  // Held past the lock: leaving destroys tangents, whose destructors may come back here.
  std::shared_ptr<StockLevel> left;
  State& s = state();
  base::MutexLock lock(s.mutex);
  if (--s.users > 0) return;
  left = s.level.lock();
  s.level.reset();
  if (s.borrowed || left == nullptr || left != StockLevel::try_get_by_idx(0)) return;
  torch::autograd::forward_ad::exit_dual_level(0);
}

void check() {
  State& s = state();
  base::MutexLock lock(s.mutex);
  s.check();
}

}  // namespace overdrive::forward_ad::host_level
