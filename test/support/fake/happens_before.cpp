#include "test/support/fake/happens_before.h"

#include <algorithm>

namespace overdrive::test::fake {

HappensBefore::HappensBefore(int streams)
    : clocks_(static_cast<size_t>(streams), Clock(static_cast<size_t>(streams))) {}

HappensBefore::Clock HappensBefore::record(int stream) const {
  std::lock_guard lock(mutex_);
  return clocks_[static_cast<size_t>(stream)];
}

void HappensBefore::wait(int stream, const Clock& event) {
  std::lock_guard lock(mutex_);
  Clock& clock = clocks_[static_cast<size_t>(stream)];
  for (size_t i = 0; i < event.size(); ++i) clock[i] = std::max(clock[i], event[i]);
}

void HappensBefore::kernel(int stream, const std::string& name, const std::vector<const void*>& reads,
                           const std::vector<const void*>& writes) {
  std::lock_guard lock(mutex_);
  const auto at = static_cast<size_t>(stream);
  for (const void* address : reads) check(memory_[address].writer, "written", stream, name);
  for (const void* address : writes) {
    check(memory_[address].writer, "written", stream, name);
    for (const Use& reader : memory_[address].readers) check(reader, "read", stream, name);
  }
  const Use now{stream, ++clocks_[at][at], name};
  for (const void* address : reads) {
    auto& readers = memory_[address].readers;
    std::erase_if(readers, [&](const Use& use) { return use.stream == stream; });
    readers.push_back(now);
  }
  for (const void* address : writes) memory_[address] = {now, {}};
}

void HappensBefore::forget(const void* memory) {
  std::lock_guard lock(mutex_);
  memory_.erase(memory);
}

bool HappensBefore::is_before(const Use& use, int stream) const {
  return use.stream < 0 || clocks_[static_cast<size_t>(stream)][static_cast<size_t>(use.stream)] >= use.time;
}

void HappensBefore::check(const Use& before, const char* how, int stream, const std::string& name) {
  if (is_before(before, stream)) return;
  violations_.push_back(name + " on stream " + std::to_string(stream) + " uses what " + before.kernel +
                        " has " + how + " on stream " + std::to_string(before.stream) +
                        " without having waited for it");
}

std::vector<std::string> HappensBefore::violations() const {
  std::lock_guard lock(mutex_);
  return violations_;
}

void HappensBefore::clear_violations() {
  std::lock_guard lock(mutex_);
  violations_.clear();
}

}  // namespace overdrive::test::fake
