// A flat hash from a node's address to its number in a plan. Owned by a Plan, used by one thread.
// Never dereferences an address. Grows by itself; keeps its memory between plans.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace overdrive::engine {

class NodeTable {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  // Empties the table and makes room for `expected` nodes.
  void reset(size_t expected) {
    size_t capacity = kSmallest;
    while (capacity < 2 * expected) capacity *= 2;
    entries_.assign(capacity, Entry{});
    mask_ = capacity - 1;
    count_ = 0;
  }

  // The number of `key`; when it has none yet it gets `next`.
  uint32_t find_or_add(const void* key, uint32_t next) {
    for (size_t at = home(key);; at = (at + 1) & mask_) {
      Entry& entry = entries_[at];
      if (entry.key == key) return entry.number;
      if (entry.key == nullptr) {
        entry = {key, next};
        if (++count_ * 2 > entries_.size()) grow();
        return next;
      }
    }
  }

  // The number of `key`, or kNone.
  uint32_t find(const void* key) const {
    for (size_t at = home(key);; at = (at + 1) & mask_) {
      if (entries_[at].key == key) return entries_[at].number;
      if (entries_[at].key == nullptr) return kNone;
    }
  }

  void release_memory() { std::vector<Entry>().swap(entries_); }

 private:
  static constexpr size_t kSmallest = 32;

  struct Entry {
    const void* key = nullptr;
    uint32_t number = kNone;
  };

  // Nodes lie at multiples of 16 and often close together: multiply, keep the high bits.
  size_t home(const void* key) const {
    return (((reinterpret_cast<uintptr_t>(key) >> 4) * 0x9E3779B97F4A7C15ull) >> 29) & mask_;
  }

  void grow() {
    std::vector<Entry> old(entries_.size() * 4);
    old.swap(entries_);
    mask_ = entries_.size() - 1;
    for (const Entry& entry : old) {
      if (entry.key == nullptr) continue;
      size_t at = home(entry.key);
      while (entries_[at].key != nullptr) at = (at + 1) & mask_;
      entries_[at] = entry;
    }
  }

  std::vector<Entry> entries_;
  size_t mask_ = 0;
  size_t count_ = 0;
};

}  // namespace overdrive::engine
