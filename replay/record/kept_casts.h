// Casts of weights that autocast keeps from one call to the next, where a captured function is called inside of
// an autocast context. Values; used on the calling thread.
//
// Note [Casts that autocast keeps]: the first operator that needs a weight in another type has it cast, with a
// node in the graph, and everything until the end of the outermost context uses this cast, whatever the weight
// is then. So a cast is no operator of the function, but something that its surroundings have: sums of
// gradients meet in it, and it may be older than the weight. A Recording learns from a recorded call which
// casts the function wants, has autocast make them before each call, and gives them to the program as inputs
// beside the caller's. What autocast keeps afterwards is what eager keeps.
#pragma once

#include "replay/record/program.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace overdrive::replay {

// The cast of each weight, made now or before: what autocast would use. Undefined where a weight is gone.
std::vector<at::Tensor> made_casts(const std::vector<KeptCast>& casts);

// Of a tensor that was there before the call: the weight that it is the kept cast of; undefined where it is
// none.
at::Tensor weight_of_cast(const at::Tensor& tensor);

// Whether autocast keeps a cast of the weight that was made before the node with this number.
bool is_kept(const KeptCast& cast, uint64_t next_node);

// Autocast as it is on this thread now, elsewhere: for a function that runs once more in a backward.
class AutocastMode {
 public:
  static AutocastMode now();
  // The same contexts, switched off.
  static AutocastMode off();

  // Is on in its scope. Casts that are kept are those of the context around, or die with the scope.
  class Scope {
   public:
    explicit Scope(const AutocastMode& mode);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const bool before_enabled_, before_cache_;
    const at::ScalarType before_type_;
    bool nests_;
  };

 private:
  AutocastMode() = default;
  bool is_enabled_ = false, has_cache_ = true, is_in_context_ = false;
  at::ScalarType type_ = at::kBFloat16;
};

}  // namespace overdrive::replay
