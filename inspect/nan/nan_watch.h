// Finds the first node that makes a NaN or an infinity out of finite gradients. A scope of the program owns a
// watch; OVERDRIVE_NAN=first watches the whole process and tells LibTorch's warning handler. Nodes run on their
// own threads; the report belongs to all. Leaves the gradients as they are, and the backward runs on.
#pragma once

#include "engine/base/export.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace overdrive {

struct NanReport {  // The node that made the first NaN or infinity.
  // A gradient as it came to the node. Without `known`: of a type whose range nobody reads.
  struct Input {
    bool known = false;
    double least = 0;
    double most = 0;
  };
  std::string node;  // "" when the gradients that the caller gave were not finite
  uint64_t sequence_nr = 0;
  std::string path;  // from a root, its middle left out
  int output = 0;    // the first gradient of the node that is not finite
  std::vector<Input> inputs;
  bool by_sum = false;  // the node added nothing: the sum of finite gradients that came to it is not finite
  bool saved_not_finite = false;  // a tensor of the forward that the node saved was not finite already

  OVERDRIVE_API std::string text() const;  // The report as sentences for people.
};

// While it lives, every backward that begins on Overdrive is watched until something is found.
class OVERDRIVE_API NanWatch {
 public:
  NanWatch();
  ~NanWatch();
  NanWatch(const NanWatch&) = delete;
  NanWatch& operator=(const NanWatch&) = delete;

  // The first finding, if there is one.
  std::optional<NanReport> first() const;

 private:
  class Watching;
  std::shared_ptr<Watching> watching_;
};

}  // namespace overdrive
