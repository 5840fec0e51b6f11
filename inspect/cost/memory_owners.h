// Names the owner of every allocation of a step: the outermost operator, the node, or a saved-tensor hook. A
// part of memory_timeline(), on the thread that runs the step; nodes of every thread. A backward pauses the
// operators.
#pragma once

#include "engine/run/watchers.h"
#include "inspect/cost/memory_kind.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace overdrive::inspect {

class OwnerNumbers;

class MemoryOwners {
 public:
  // Numbers are given from here on.
  MemoryOwners();
  ~MemoryOwners();
  MemoryOwners(const MemoryOwners&) = delete;
  MemoryOwners& operator=(const MemoryOwners&) = delete;

  using Owner = std::pair<MemoryKind, std::string>;
  // By number.
  std::vector<Owner> owners() const;

 private:
  const std::shared_ptr<OwnerNumbers> numbers_;
  const engine::WatcherScope watching_;
};

}  // namespace overdrive::inspect
