// Bytes of memories and states of random generators at one moment, to be compared or put back. A value, used by
// the thread that runs the step. Knows no tensors. The program owns the memory.
#pragma once

#include "replay/bind/bound_program.h"

#include <ATen/core/Generator.h>

#include <string>
#include <vector>

namespace overdrive::replay {

class Snapshot {
 public:
  Snapshot() = default;

  // The storage must be alive until restore(); its address must not change.
  void add(c10::StorageImpl* storage) { add(storage, storage->nbytes()); }
  // The first bytes alone.
  void add(c10::StorageImpl* storage, size_t bytes);
  void add(const at::Generator& generator);

  // The same memories and generators, as they are now.
  Snapshot now() const;
  void restore() const;
  bool empty() const { return memories_.empty() && generators_.empty(); }
  size_t size() const { return memories_.size(); }
  // Index of the first memory that differs, generators after the last; -1 when all are equal.
  int first_difference(const Snapshot& other) const;
  // Indices of all that differ.
  std::vector<int> differences(const Snapshot& other) const;
  // From what is there now.
  std::vector<int> differences() const;
  // Takes the bytes again, into the same buffers.
  void take();

 private:
  struct Bytes {
    c10::StorageImpl* storage;
    std::string bytes;
  };
  struct State {
    at::Generator generator;
    at::Tensor state;
  };
  std::vector<Bytes> memories_;
  std::vector<State> generators_;
};

// Those that the operators of a program draw from.
std::vector<at::Generator> generators_of(const Program& program);

}  // namespace overdrive::replay
