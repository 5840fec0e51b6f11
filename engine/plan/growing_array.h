// An array of plain values that grows at its end. Unlike std::vector, the array grows by half and through
// realloc(): the system moves the pages of a large array and never holds two copies. So the tables of a
// million-node graph cost less memory than the host's. Owned by a Plan; used by one thread.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>
#include <type_traits>

namespace overdrive::engine {

template <typename T>
class GrowingArray {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  GrowingArray() = default;
  ~GrowingArray() { std::free(values_); }
  GrowingArray(const GrowingArray&) = delete;
  GrowingArray& operator=(const GrowingArray&) = delete;

  void push_back(const T& value) {
    if (size_ == capacity_) [[unlikely]]
      grow();
    values_[size_++] = value;
  }
  T& operator[](size_t index) { return values_[index]; }
  const T& operator[](size_t index) const { return values_[index]; }
  size_t size() const { return size_; }
  size_t capacity() const { return capacity_; }
  T* begin() { return values_; }
  T* end() { return values_ + size_; }
  const T* begin() const { return values_; }
  const T* end() const { return values_ + size_; }

  // Keeps the memory.
  void clear() { size_ = 0; }
  void release_memory() {
    std::free(values_);
    values_ = nullptr;
    size_ = capacity_ = 0;
  }

 private:
  void grow() {
    const size_t wanted = capacity_ < 8 ? 8 : capacity_ + capacity_ / 2;
    void* memory = std::realloc(static_cast<void*>(values_), wanted * sizeof(T));
    if (memory == nullptr) throw std::bad_alloc();
    values_ = static_cast<T*>(memory);
    capacity_ = wanted;
  }

  T* values_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace overdrive::engine
