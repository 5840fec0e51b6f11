// Notes every RecordFunction range that begins and ends while it lives: name, sequence
// number, forward thread, scope, inputs, nesting. Owned by the test; all threads are seen.
#pragma once

#include "test/support/pch.h"

#include <ATen/record_function.h>

#include <mutex>
#include <string>
#include <vector>

namespace overdrive::test {

class RecordObserver {
 public:
  enum class Scope { kBackwardOnly, kAll };
  explicit RecordObserver(Scope scope = Scope::kAll, bool inputs = false);
  ~RecordObserver();
  RecordObserver(const RecordObserver&) = delete;
  RecordObserver& operator=(const RecordObserver&) = delete;

  // One line a range, indented by depth; without the ranges whose names end in `except`,
  // whose children move up.
  std::vector<std::string> ranges(const std::string& except = "") const;
  int count(const std::string& name) const;

 private:
  struct Event {
    bool begin;
    std::string name;
    std::string line;
  };
  struct Context;
  static std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& range);
  static void leave(const at::RecordFunction& range, at::ObserverContext* context);

  at::CallbackHandle handle_;
  mutable std::mutex mutex_;
  std::vector<Event> events_;
};

}  // namespace overdrive::test
