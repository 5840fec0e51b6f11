// Names the owner of every allocation of a step: the outermost operator, the node, or a saved-tensor hook. A
// part of memory_timeline(), on the thread that runs the step; nodes of every thread. A backward pauses the
// operators.
#pragma once

#include "inspect/cost/memory_kind.h"
#include "inspect/cost/step_record.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace overdrive::inspect {

class MemoryOwners {
 public:
  // Numbers are given from here on. `record`, or null, gets the operators and nodes.
  explicit MemoryOwners(StepRecord* record = nullptr);
  ~MemoryOwners();
  MemoryOwners(const MemoryOwners&) = delete;
  MemoryOwners& operator=(const MemoryOwners&) = delete;

  using Owner = std::pair<MemoryKind, std::string>;
  // By number.
  std::vector<Owner> owners() const;

 private:
  struct Parts;
  const std::shared_ptr<Parts> parts_;
};

}  // namespace overdrive::inspect
