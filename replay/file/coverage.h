// Which bytes of a memory have values, while the operators of a program are looked at in their order. Owned by
// the check of one program; one thread. Knows tensors by offset, sizes and strides, in bytes.
#pragma once

#include "replay/record/program.h"

#include <map>

namespace overdrive::replay {

class Coverage {
 public:
  void add(size_t begin, size_t end);
  bool has(size_t begin, size_t end) const;
  // The elements of a tensor. Throws where they are too scattered to be followed.
  void add(const Value& value);
  bool has(const Value& value) const;

 private:
  // Begins with their ends; apart from each other.
  std::map<size_t, size_t> ranges_;
};

}  // namespace overdrive::replay
