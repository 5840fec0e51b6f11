// A program of a step file with memory: made out of its tables, proved by the file's own call, and replayed.
// Owned by a loaded step, as are the tables and the tensors that it refers to. One thread at a time.
#pragma once

#include "replay/file/proving_call.h"
#include "replay/file/stored_optimizer.h"
#include "replay/file/stored_step.h"
#include "replay/guard/shared_memory.h"
#include "replay/run/replay_run.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace overdrive::replay {

// The tensors of a file in memory of their own, and the generators.
struct LoadedTensors {
  explicit LoadedTensors(const StoredStep& step);

  std::vector<c10::Storage> storages;
  // Of each storage the tensors in it.
  std::vector<std::vector<at::Tensor>> views;
  // What programs leave under one name is one memory.
  std::map<std::string, c10::Storage> left = {};
};

class LoadedProgram {
 public:
  // `program` is the checked one.
  LoadedProgram(StoredStep& step, const StoredProgram& stored, Program program, LoadedTensors& tensors);
  LoadedProgram(const LoadedProgram&) = delete;
  LoadedProgram& operator=(const LoadedProgram&) = delete;

  // Whether inputs of these sizes and types are its own; `exactly`: laid out as they were recorded, too.
  bool fits(const std::vector<at::Tensor>& inputs, bool exactly) const;
  // Makes the call of the file, on copies. Returns what differs, or nothing.
  std::string prove();
  std::vector<at::Tensor> call(const std::vector<at::Tensor>& inputs);
  // Copies of the inputs of the file's call; zeros where it has none.
  std::vector<at::Tensor> recorded_inputs() const;

  const Program& program() const { return run_->program(); }
  const ReplayRun& run() const { return *run_; }
  // Whether a call was made, so that each operator has the form that it keeps.
  bool is_tried() const { return is_tried_; }
  const StoredProgram& stored() const { return stored_; }
  // What the step leaves behind, as gradients: name and tensor.
  const std::vector<std::pair<std::string, at::Tensor>>& left() const { return left_; }

 private:
  void give_memory(Program& program, LoadedTensors& tensors);
  void make_buffers();
  void fill_buffers(const std::vector<at::Tensor>& inputs) const;
  void give_back(const std::vector<at::Tensor>& inputs) const;
  void fill_buffers(const StoredCall& call) const;
  // Tries every operator on what lies in the buffers, and once more, in memory with other bytes. Leaves all as
  // it was. Returns what the call left, as a digest.
  uint64_t try_operators();
  std::string first_difference(const Snapshot& start);
  std::string largest_difference() const;

  StoredStep& step_;
  const StoredProgram& stored_;
  ProgramIndices indices_;
  std::vector<at::Tensor> buffers_;
  std::vector<at::Tensor> outside_;
  std::vector<std::pair<std::string, at::Tensor>> left_;
  std::unique_ptr<ReplayRun> run_;
  UpdatesOfRun updates_;
  SharedMemory shared_;
  bool is_tried_ = false;
};

}  // namespace overdrive::replay
