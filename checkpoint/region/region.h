// A function that runs twice: for its value, and again for the tensors that its backward needs. Owned by the
// nodes that run it again. The first run is over before another thread sees the region. From then on the region
// does not change, and any thread may run it again. Leaves out where its inputs are kept meanwhile.
#pragma once

#include "checkpoint/region/options.h"
#include "checkpoint/region/outer_writes.h"
#include "checkpoint/region/run_state.h"
#include "checkpoint/region/tensor_signature.h"
#include "engine/base/generator_states.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace overdrive::checkpoint {

// The way out of the limits of the early form, for messages. A pipeline's stages are regions of that form.
inline constexpr const char* kOtherForm =
    "the form kOnDemand (for a Pipeline's stages: PipelineOptions::checkpointed = kNever)";

// Throws when an option has no meaning, or none in this form. `who` is the name of the caller's function.
void check_options(const char* who, const Options& options, Form form);

// The first defined tensor; an error when there is none.
const at::Tensor& first_defined(const Tensors& inputs, const Options& options);
// Inside a functorch transform or a level of forward_ad/, without grad mode, and for inputs with tangents: a
// level's knowledge of a tensor ends with the level, and a second run might not find the tangents that the
// first one saved.
bool runs_plainly(const Tensors& inputs);

class Region {
 public:
  Region(Function function, Options options);

  // On the thread of the forward, in the modes that later runs get too. Without a graph, on tensors without
  // history, or with one.
  Tensors run_first(const Tensors& inputs, bool graph);

  // In the modes and with the random numbers of the first run, without a graph. The outputs are compared with
  // the first ones.
  Tensors run_again(const Tensors& inputs) const;

  // The same with a graph: `call` calls the function, and gives nothing where it did not finish. It is inside
  // the modes, too: an operator out there may be in layers that the first run did not have. Returns the values
  // that the function wrote to tensors from outside, which are no longer there.
  using Call = std::function<std::optional<Tensors>(const Function&, const Tensors&)>;
  OuterValues run_again_within(const Tensors& inputs, const Call& call) const;

  // Throws in a backward that cannot have a backward of its own inside.
  void check_backward() const;

  // In its first run; known with preserve_rng only.
  bool draws_random_numbers() const { return !rng_.empty(); }
  bool draws_on_cpu() const { return rng_.has_cpu(); }
  // To tensors other than its outputs.
  bool writes_to_tensors() const { return writes_to_tensors_; }

  const Options& options() const { return options_; }
  // For messages: "checkpointed region 3 (encoder)"
  std::string name() const;
  // Throws: tensor `index` of the `what` looks otherwise than in the first run.
  [[noreturn]] void refuse(const char* what, size_t index, const TensorSignature& first,
                           const TensorSignature& again) const;

 private:
  void check_outputs(const Tensors& outputs) const;

  const Function function_;
  const Options options_;
  const uint64_t number_;
  const RunState state_;
  base::GeneratorStates rng_;
  OuterWrites writes_;
  bool writes_to_tensors_ = false;
  std::vector<TensorSignature> outputs_;
};

}  // namespace overdrive::checkpoint
