// A program with memory: a storage for every memory it names, a tensor for every value. Owned by its ReplayRun;
// one thread at a time. From here on the program owns what it makes and leaves behind; memory from outside
// stays the caller's, and the guard sees to it that it is there. Runs nothing.
#pragma once

#include "replay/passes/passes.h"
#include "replay/record/program.h"

namespace overdrive::replay {

class BoundProgram {
 public:
  // The inputs' buffers are those of the recording, and are kept. Refuses, by program().refusal, where memory
  // has died since.
  BoundProgram(Program program, Passes passes, const std::vector<at::Tensor>& buffers);
  BoundProgram(const BoundProgram&) = delete;
  BoundProgram& operator=(const BoundProgram&) = delete;

  const Program& program() const { return program_; }
  const Passes& passes() const { return passes_; }
  Program take_program() { return std::move(program_); }
  // Of each input in turn.
  const std::vector<at::Tensor>& buffers() const { return buffers_; }
  const at::Tensor& tensor(int value) const { return tensors_[value]; }
  const c10::Storage& storage(int memory) const { return storages_[memory]; }
  size_t arena_bytes() const { return arena_bytes_; }
  // Memory that lives on, and that this one lies in before it is made; -1 for none.
  int host_of(int memory) const { return host_of_[memory]; }

  // Whether the value's tensor still is where it was put.
  bool intact(int value) const;
  // Memory that an operator of a replay has to fill gets this byte everywhere; constants keep theirs.
  void poison(uint8_t byte);
  // The numbers that the program wrote by hand.
  void fill_from_host(int memory) const;

 private:
  void place();
  at::Tensor make_tensor(const Value& value) const;

  Program program_;
  const Passes passes_;
  const std::vector<at::Tensor> buffers_;
  at::DataPtr arena_;
  size_t arena_bytes_ = 0;
  std::vector<c10::Storage> storages_;
  // One reference each to new gradients' memory, by which others are told apart (guard/kept_gradients.h).
  std::vector<c10::Storage> owners_;
  std::vector<at::Tensor> tensors_;
  std::vector<int> host_of_;
};

}  // namespace overdrive::replay
