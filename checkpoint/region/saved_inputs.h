// The inputs of a region, from its first run to the last: kept under the rules for tensors that a node saves,
// so one that is changed in place meanwhile is the usual error. A member of who runs the region again; any
// thread may unpack.
#pragma once

#include "checkpoint/region/options.h"
#include "hooks/hooks.h"

#include <vector>

namespace overdrive::checkpoint {

class SavedInputs {
 public:
  explicit SavedInputs(const Tensors& inputs);

  // As they were. Without a node, errors do not name it.
  Tensors unpack(base::Node* node = nullptr) const;
  // Whether hooks have one: it may take another region's second run to come back.
  bool have_hooks() const;
  // Lets them go. Unpacking them from here on is the error of a second backward.
  void release();

 private:
  std::vector<hooks::SavedTensor> inputs_;
};

}  // namespace overdrive::checkpoint
