// The workers of the process, one for each device that a backward has needed. One object, never destroyed. Any
// thread. Starts workers, counts their users and ends unused ones. Leaves the tasks to the workers.
#pragma once

#include "engine/base/process_mutex.h"
#include "engine/devices/worker.h"

#include <map>
#include <memory>
#include <vector>

namespace overdrive::engine {

class WorkerGroup {
 public:
  static WorkerGroup& get();
  WorkerGroup();

  using Workers = std::vector<std::shared_ptr<Worker>>;

  // Adds the worker of each device, started if need be; in use until it is given back. Null where the system
  // refuses a thread.
  void take(HostEngine& engine, const std::vector<c10::Device>& devices, Workers& into)
      OVERDRIVE_EXCLUDES(mutex_);
  void give_back(const Workers& workers) OVERDRIVE_EXCLUDES(mutex_);

  // Ends and joins the workers that are not in use, now, and the others when they are given back. Makes no
  // group where there is none: a fork may come at any moment.
  static void retire_all();

 private:
  struct Entry {
    std::shared_ptr<Worker> worker;
    int users = 0;
    bool retired = false;
  };
  void retire() OVERDRIVE_EXCLUDES(mutex_);
  std::shared_ptr<Worker> take_one(HostEngine& engine, c10::Device device) OVERDRIVE_REQUIRES(mutex_);
  bool ends_without(const Worker& worker) OVERDRIVE_REQUIRES(mutex_);

  using Entries = std::map<std::pair<c10::DeviceType, c10::DeviceIndex>, Entry>;

  // In a child of fork(), which has none of the threads.
  void start_afresh() OVERDRIVE_EXCLUDES(mutex_);

  base::ProcessMutex mutex_{"workers", [] { get().start_afresh(); }};
  Entries entries_ OVERDRIVE_GUARDED_BY(mutex_);
  bool after_fork_ OVERDRIVE_GUARDED_BY(mutex_) = false;  // in a child, until its first worker starts
};

// The workers of one run.
class WorkerLease {
 public:
  WorkerLease() = default;
  ~WorkerLease() {
    if (!workers_.empty()) WorkerGroup::get().give_back(workers_);
  }
  WorkerLease(const WorkerLease&) = delete;
  WorkerLease& operator=(const WorkerLease&) = delete;

  // Null where the system refuses a thread.
  const WorkerGroup::Workers& take(HostEngine& engine, const std::vector<c10::Device>& devices) {
    WorkerGroup::get().take(engine, devices, workers_);
    return workers_;
  }
  void drop_missing() { std::erase(workers_, nullptr); }
  const WorkerGroup::Workers& workers() const { return workers_; }

 private:
  WorkerGroup::Workers workers_;
};

}  // namespace overdrive::engine
