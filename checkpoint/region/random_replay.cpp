#include "checkpoint/region/random_replay.h"

#include "engine/base/no_destructor.h"

namespace overdrive::checkpoint {

namespace {

// A region that runs again may hold another that does, so a thread may take it twice.
std::recursive_mutex& replay_mutex() {
  static base::NoDestructor<std::recursive_mutex> mutex;
  return *mutex;
}

}  // namespace

RngReplay::RngReplay(const base::GeneratorStates& states) {
  if (states.empty()) return;
  alone_ = std::unique_lock(replay_mutex());
  back_.emplace(states);
}

}  // namespace overdrive::checkpoint
