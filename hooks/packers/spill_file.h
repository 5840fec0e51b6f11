// A file without a name, which grows at the end and is read anywhere. Owned by the tensors in it. Any thread; a
// place in it is given out once and written once before it is read.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace overdrive::hooks {

class SpillFile {
 public:
  // Throws with the folder's name when it cannot be made there. `drop_cached`: the system keeps no copy in
  // memory.
  explicit SpillFile(const std::string& folder, bool drop_cached = false);
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  // Whole pages: the system drops no others, and would have to read the rest of one to write beside it.
  int64_t reserve(int64_t bytes) { return end_.fetch_add(whole_pages(bytes), std::memory_order_relaxed); }

  // All of it, or an error that names the file. Without a cached copy it is on the disk when write() returns.
  void write(const void* from, int64_t bytes, int64_t at) const;
  void read(void* to, int64_t bytes, int64_t at) const;
  // The system begins to read it, as far as it likes.
  void expect(int64_t bytes, int64_t at) const;

  const std::string& path() const { return path_; }

 private:
  static int64_t whole_pages(int64_t bytes) {
    constexpr int64_t kPageBytes = 4096;
    return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  }
  void flush(int64_t bytes, int64_t at) const;
  void drop(int64_t bytes, int64_t at) const;

  const bool drop_cached_;
  std::string path_;  // as it was, for messages; the folder of a file that never had a name
  int descriptor_ = -1;
  std::atomic<int64_t> end_{0};
};

}  // namespace overdrive::hooks
