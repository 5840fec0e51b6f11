// One program as tables of a step file. Owned by write_step while it writes; collects what programs share:
// schemas, tensors, generators, optimizers. Reads the program and changes nothing.
#pragma once

#include "replay/file/program_to_save.h"
#include "replay/file/proving_call.h"
#include "replay/file/save_options.h"
#include "replay/file/stored_step.h"

#include <map>
#include <unordered_map>

namespace overdrive::replay {

class ProgramWriter {
 public:
  ProgramWriter(StoredStep& step, const SaveOptions& options);

  // The tables, and where everything stands in the run's program.
  std::pair<StoredProgram, ProgramIndices> write(const ProgramToSave& given);

 private:
  struct Numbering;

  void note_used(const Program& program, Numbering& numbering) const;
  StoredMemory memory(const ProgramToSave& given, int index, const Numbering& numbering);
  uint32_t tensor(const ProgramToSave& given, int memory);
  void name_left(const Program& program, int memory, const Numbering& numbering, StoredMemory& stored) const;
  StoredOperator operator_of(const Operator& op, const Numbering& numbering);
  void write_optimizer(const OptimizerNumbers& numbers, const Numbering& numbering, StoredProgram& stored);
  void check_apart(const c10::Storage& storage, const std::string& name) const;
  std::string name_of(const c10::TensorImpl* tensor) const;

  StoredStep& step_;
  // By storage.
  std::unordered_map<const c10::StorageImpl*, std::vector<std::pair<std::string, at::Tensor>>> names_;
  std::unordered_map<const c10::TensorImpl*, std::string> names_of_tensors_;
  std::map<std::string, uint32_t> schemas_;
  std::unordered_map<const c10::StorageImpl*, uint32_t> tensors_;
  // Keep the memory that values refer to.
  std::vector<c10::Storage> kept_;
  struct KnownOptimizer {
    const torch::optim::Optimizer* optimizer;
    std::unordered_map<const c10::TensorImpl*, uint32_t> parameters;
  };
  std::vector<KnownOptimizer> optimizers_;
};

}  // namespace overdrive::replay
