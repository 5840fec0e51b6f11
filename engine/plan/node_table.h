// A flat hash from a node's address to its number in a plan. Holds the numbers and a part of each hash; the
// plan holds the addresses, so both stay small. Owned by a Plan, which chooses the nodes; used by one thread.
// Keeps its memory between plans. Never dereferences an address.
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
    while (!has_room(expected, capacity)) capacity *= 2;
    clear_to(capacity);
    count_ = 0;
  }

  // The number of `key`. A new key enters with the number `next`. `address_of(number)` returns the key of a
  // number in the table.
  template <typename AddressOf>
  uint32_t find_or_add(const void* key, uint32_t next, AddressOf address_of) {
    const uint64_t hash = hash_of(key);
    for (size_t at = hash & mask_;; at = (at + 1) & mask_) {
      Entry& entry = entries_[at];
      if (entry.number == kNone) {
        entry = {tag_of(hash), next};
        ++count_;
        return next;
      }
      if (entry.tag == tag_of(hash) && address_of(entry.number) == key) return entry.number;
    }
  }

  // The number of `key`, or kNone.
  template <typename AddressOf>
  uint32_t find(const void* key, AddressOf address_of) const {
    const uint64_t hash = hash_of(key);
    for (size_t at = hash & mask_;; at = (at + 1) & mask_) {
      const Entry& entry = entries_[at];
      if (entry.number == kNone) return kNone;
      if (entry.tag == tag_of(hash) && address_of(entry.number) == key) return entry.number;
    }
  }

  // Call before one more key enters. `address_of(number)`, for every number below `numbers`, returns the key,
  // or null for a number that is not in the table.
  template <typename AddressOf>
  void make_room(uint32_t numbers, AddressOf address_of) {
    if (has_room(count_ + 1, entries_.size())) [[likely]]
      return;
    clear_to(entries_.size() * 2);
    for (uint32_t number = 0; number < numbers; ++number) {
      const void* const key = address_of(number);
      if (key == nullptr) continue;
      const uint64_t hash = hash_of(key);
      size_t at = hash & mask_;
      while (entries_[at].number != kNone) at = (at + 1) & mask_;
      entries_[at] = {tag_of(hash), number};
    }
  }

  uint32_t count() const { return count_; }
  void release_memory() { std::vector<Entry>().swap(entries_); }

 private:
  static constexpr size_t kSmallest = 16;

  struct Entry {
    uint32_t tag;
    uint32_t number;
  };

  static bool has_room(size_t count, size_t capacity) { return 3 * count <= 2 * capacity; }

  // Nodes lie at multiples of 16 and often close together: multiply, use the high bits.
  static uint64_t hash_of(const void* key) {
    const uint64_t product = (reinterpret_cast<uintptr_t>(key) >> 4) * 0x9E3779B97F4A7C15ull;
    return product >> 29 | product << 35;
  }
  static uint32_t tag_of(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }

  void clear_to(size_t capacity) {
    if (capacity > entries_.capacity()) std::vector<Entry>().swap(entries_);  // never two blocks at once
    entries_.assign(capacity, Entry{0, kNone});
    mask_ = capacity - 1;
  }

  std::vector<Entry> entries_;
  size_t mask_ = 0;
  uint32_t count_ = 0;
};

}  // namespace overdrive::engine
