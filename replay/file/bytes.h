// Numbers, texts and lists as the bytes of a step file: little endian, without gaps. A writer appends, a reader
// looks at every size before it uses it, and throws where the bytes end too soon. Values of the caller; one
// thread at a time. docs/step_file.md describes the format.
#pragma once

#include <c10/util/Exception.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace overdrive::replay {

static_assert(std::endian::native == std::endian::little, "a step file is little endian");

// Of bytes, eight at a time; the last ones are followed by zeros.
inline uint64_t digest_of(std::string_view bytes, uint64_t digest = 0) {
  const auto add = [&](uint64_t word) {
    digest = (digest ^ word) * 0x9e3779b97f4a7c15;
    digest ^= digest >> 32;
  };
  add(bytes.size());
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min(sizeof word, bytes.size() - at));
    add(word);
  }
  return digest;
}

class ByteWriter {
 public:
  template <typename T>
  void number(T value) {
    static_assert(std::is_arithmetic_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void flag(bool value) { number<uint8_t>(value ? 1 : 0); }
  void count(size_t value) {
    TORCH_CHECK(value <= UINT32_MAX, "a list of the step is too long for a step file.");
    number(static_cast<uint32_t>(value));
  }
  void text(std::string_view value) {
    count(value.size());
    bytes_.append(value);
  }
  // Bytes of a tensor.
  void data(std::string_view value) {
    number(static_cast<uint64_t>(value.size()));
    bytes_.append(value);
  }
  template <typename List, typename Write>
  void list(const List& items, const Write& write) {
    count(items.size());
    for (const auto& item : items) write(item);
  }
  template <typename List>
  void numbers(const List& items) {
    list(items, [&](auto item) { number(item); });
  }
  std::string& bytes() { return bytes_; }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  T number() {
    static_assert(std::is_arithmetic_v<T>);
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  bool flag() {
    const auto value = number<uint8_t>();
    TORCH_CHECK(value <= 1, "a flag is neither 0 nor 1.");
    return value == 1;
  }
  std::string_view text() { return take(number<uint32_t>()); }
  std::string_view data() { return take(number<uint64_t>()); }
  // The length of a list whose items take so many bytes or more.
  size_t count(size_t least) {
    const auto value = number<uint32_t>();
    TORCH_CHECK(value <= rest_.size() / least, "a list is longer than the rest of the file.");
    return value;
  }
  template <typename List, typename Read>
  void list(List& items, size_t least, const Read& read) {
    const size_t size = count(least);
    items.reserve(size);
    for (size_t i = 0; i < size; ++i) items.push_back(read());
  }
  template <typename List>
  void numbers(List& items) {
    using T = typename List::value_type;
    list(items, sizeof(T), [&] { return number<T>(); });
  }
  bool is_done() const { return rest_.empty(); }

 private:
  std::string_view take(uint64_t size) {
    TORCH_CHECK(size <= rest_.size(), "the file ends in the middle.");
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view rest_;
};

}  // namespace overdrive::replay
