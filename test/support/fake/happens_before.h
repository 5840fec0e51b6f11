// Which work on the streams of a device is ordered before which, by a vector clock per stream. Knows
// numbers of streams and addresses, no device and no LibTorch. Any thread; one lock inside. Reports a
// kernel that uses memory whose writer, or that writes memory whose reader, is not ordered before
// it: no delay and no luck is needed to find a missing wait.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace overdrive::test::fake {

class HappensBefore {
 public:
  using Clock = std::vector<uint64_t>;

  explicit HappensBefore(int streams);

  // What is on `stream` now: an event.
  Clock record(int stream) const;
  // What comes on `stream` from now on runs after the event.
  void wait(int stream, const Clock& event);

  void kernel(int stream, const std::string& name, const std::vector<const void*>& reads,
              const std::vector<const void*>& writes);
  // The memory was freed; its address may come back as another's.
  void forget(const void* memory);

  // Sentences, oldest first. Reading them leaves them there.
  std::vector<std::string> violations() const;
  void clear_violations();

 private:
  struct Use {
    int stream = -1;
    uint64_t time = 0;
    std::string kernel;
  };
  struct Memory {
    Use writer;
    std::vector<Use> readers;  // since the last write, one a stream
  };

  bool is_before(const Use& use, int stream) const;
  void check(const Use& before, const char* how, int stream, const std::string& name);

  mutable std::mutex mutex_;
  std::vector<Clock> clocks_;
  std::map<const void*, Memory> memory_;
  std::vector<std::string> violations_;
};

}  // namespace overdrive::test::fake
