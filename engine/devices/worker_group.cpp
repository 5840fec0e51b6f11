#include "engine/devices/worker_group.h"

#include "engine/base/no_destructor.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <optional>
#include <string>
#include <system_error>

namespace overdrive::engine {
namespace {

using base::MutexLock;

std::atomic<bool> there_is_a_group{false};

void warn_of_refused_thread(c10::Device device, const std::string& why) {
  static std::atomic<bool> warned{false};
  if (warned.exchange(true)) return;
  TORCH_WARN("Overdrive could not start a thread for ", device, " (", why,
             "); the threads that call backward run its nodes themselves.");
}

}  // namespace

WorkerGroup& WorkerGroup::get() {
  static base::NoDestructor<WorkerGroup> group;
  return *group;
}

// At exit before LibTorch's own statics go, which were there first.
WorkerGroup::WorkerGroup() {
  std::atexit(&WorkerGroup::retire_all);
  there_is_a_group.store(true, std::memory_order_release);
}

void WorkerGroup::retire_all() {
  if (there_is_a_group.load(std::memory_order_acquire)) get().retire();
}

void WorkerGroup::take(HostEngine& engine, const std::vector<c10::Device>& devices, Workers& into) {
  into.reserve(into.size() + devices.size());
  std::optional<c10::Device> refused;
  std::string why;
  {
    MutexLock lock(mutex_);
    for (const c10::Device& device : devices) {
      try {
        into.push_back(take_one(engine, device));
      } catch (const std::system_error& error) {
        into.push_back(nullptr);
        refused = device;
        why = error.what();
      }
    }
  }
  // Outside the lock: a warning runs the program's own handler.
  if (refused.has_value()) warn_of_refused_thread(*refused, why);
}

std::shared_ptr<Worker> WorkerGroup::take_one(HostEngine& engine, c10::Device device) {
  if (after_fork_) {
    // The first call in a child makes the host's intra-op pool anew, and two threads at once break it:
    // workers make this call when they start.
    at::init_num_threads();
    after_fork_ = false;
  }
  Entry& entry = entries_[{device.type(), device.index()}];
  if (entry.worker == nullptr) entry = {std::make_shared<Worker>(engine, device)};
  ++entry.users;
  return entry.worker;
}

void WorkerGroup::give_back(const Workers& workers) {
  Workers ended;
  {
    MutexLock lock(mutex_);
    for (const auto& worker : workers) {
      if (worker != nullptr && ends_without(*worker)) ended.push_back(worker);
    }
  }
  for (const auto& worker : ended) worker->stop();
}

// One user less: true when it was the last of a worker that is to end.
bool WorkerGroup::ends_without(const Worker& worker) {
  const auto at = entries_.find({worker.device().type(), worker.device().index()});
  // Not there in a child of fork().
  if (at == entries_.end() || at->second.worker.get() != &worker) return false;
  if (--at->second.users != 0 || !at->second.retired) return false;
  entries_.erase(at);
  return true;
}

void WorkerGroup::retire() {
  std::vector<std::shared_ptr<Worker>> ended;
  {
    MutexLock lock(mutex_);
    for (auto at = entries_.begin(); at != entries_.end();) {
      Entry& entry = at->second;
      entry.retired = true;
      if (entry.users == 0 && entry.worker != nullptr) ended.push_back(std::move(entry.worker));
      at = entry.users == 0 ? entries_.erase(at) : std::next(at);
    }
  }
  for (const auto& worker : ended) worker->stop();
}

// The objects stay where they are: their locks may be held by threads that are gone.
void WorkerGroup::start_afresh() {
  auto* const lost = new Entries;
  const MutexLock lock(mutex_);
  lost->swap(entries_);
  after_fork_ = true;
  Participants::forget_all();
}

}  // namespace overdrive::engine
