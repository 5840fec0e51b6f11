// Casts of weights that the function wants beside its inputs, by Note [Casts that autocast keeps]. Owned by a
// Recording; one thread at a time. Does not decide what a cast that is gone means.
#pragma once

#include "replay/guard/input_signature.h"
#include "replay/record/kept_casts.h"
#include "replay/record/program.h"

#include <optional>
#include <vector>

namespace overdrive::replay {

class WantedCasts {
 public:
  bool empty() const { return all_.empty(); }
  const std::vector<KeptCast>& all() const { return all_; }

  // Whether a recording met casts that were not known. They are kept in the order in which autocast made them,
  // which is the order that a backward meets their nodes in.
  bool learn(const Program& program);
  // The inputs with the casts behind them, as autocast keeps them now. None where they are others than before:
  // a cast was made without a graph or in another order, or its weight is gone.
  std::optional<std::vector<at::Tensor>> add_to(const std::vector<at::Tensor>& inputs);
  void forget();

 private:
  std::vector<KeptCast> all_;
  // Of inputs and casts.
  std::vector<InputSignature> signatures_;
};

}  // namespace overdrive::replay
