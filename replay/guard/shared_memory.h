// Memory that inputs of a call share with each other, or with tensors that the step uses from outside, where
// one of them is changed: a copy of the input would not see the change. A value, made of a program; one thread
// at a time. Compares addresses, so that storages that were made over the same memory are found too.
#pragma once

#include "replay/record/program.h"

#include <vector>

namespace overdrive::replay {

class SharedMemory {
 public:
  SharedMemory() = default;
  explicit SharedMemory(const Program& program);

  bool harmless(const std::vector<at::Tensor>& inputs) const;

 private:
  struct Range {
    const char* begin;
    const char* end;

    bool meets(const Range& other) const { return begin < other.end && other.begin < end; }
  };
  static Range range_of(const at::Tensor& tensor);

  // Inputs that must begin where their storage does.
  std::vector<int> begin_of_storage_;
  std::vector<std::pair<int, size_t>> asked_storages_;
  bool meets_outside(const Range& range) const;

  // Memory that no input may share: in order, and none meets another one.
  std::vector<Range> outside_;
  bool writes_inputs_ = false;
};

}  // namespace overdrive::replay
