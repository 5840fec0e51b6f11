#include "checkpoint/region/region.h"

#include "checkpoint/region/phase.h"
#include "engine/base/autograd_modes.h"
#include "engine/base/auxiliary_span.h"
#include "engine/base/no_destructor.h"
#include "engine/base/process_mutex.h"
#include "engine/base/tensor_version.h"

#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

namespace overdrive::checkpoint {

namespace {

std::atomic<uint64_t> regions{0};

std::vector<int64_t> versions_of(const Tensors& tensors) {
  std::vector<int64_t> versions;
  versions.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) versions.push_back(base::version_of(tensor));
  return versions;
}

Tensors without_history(const Tensors& tensors) {
  Tensors detached;
  detached.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) detached.push_back(tensor.defined() ? tensor.detach() : tensor);
  return detached;
}

// Backwards that this thread begins in the scope start no thread and wait for none.
class OneThread {
 public:
  OneThread() : outer_(c10::AutogradState::get_tls_state().get_multithreading_enabled()) { set(false); }
  ~OneThread() { set(outer_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  static void set(bool on) { c10::AutogradState::get_tls_state().set_multithreading_enabled(on); }
  const bool outer_;
};

// Puts the generators where they were, for the length of a scope. One thread at a time: they are the
// process's, and two that replay at once would get each other's numbers. A region that runs again may hold
// another that does, so a thread may take the lock twice. The program's function runs under the lock. A
// backward in it must not wait for a worker, because the worker may wait for the lock with a region of another
// run. So this thread runs all nodes of such a backward.
class RngReplay {
 public:
  explicit RngReplay(const base::GeneratorStates& states) {
    if (states.empty()) return;
    static base::NoDestructor<base::RecursiveProcessMutex> mutex("random regions");
    alone_ = std::unique_lock(*mutex);
    one_thread_.emplace();
    back_.emplace(states);
  }

 private:
  std::unique_lock<base::RecursiveProcessMutex> alone_;  // the last to go
  std::optional<OneThread> one_thread_;
  std::optional<base::GeneratorsBack> back_;
};

}  // namespace

// An option that is set must have an effect, because a program relies on the options that it sets.
void check_options(const char* who, const Options& options, Form form) {
  const std::string here = std::string(who) + (options.name.empty() ? "" : " (" + options.name + ")");
  TORCH_CHECK(form == Form::kEarly || form == Form::kOnDemand, here, ": Options::form is ",
              static_cast<int>(form), ", which is neither kEarly nor kOnDemand.");
  TORCH_CHECK(options.ahead >= 0, here, ": Options::ahead is ", options.ahead,
              "; it counts regions and takes 0 and more.");
  TORCH_CHECK(
      options.packer == nullptr || options.policy != nullptr, here,
      ": Options::packer packs the tensors that a policy picks (Choice::kPack), but there is no policy. Set "
      "Options::policy, or put ScopedHooks around the region's call instead.");
  if (form == Form::kOnDemand) {
    TORCH_CHECK(
        options.ahead == 0, here,
        ": a region of the form kOnDemand runs again when a tensor is asked for, and cannot run ahead. Use "
        "the form kEarly.");
    return;
  }
  TORCH_CHECK(
      options.policy == nullptr, here,
      ": a policy chooses among saved tensors, which the early form does not have. Use the form kOnDemand.");
  TORCH_CHECK(
      !options.keep_recomputed, here,
      ": Options::keep_recomputed belongs to the form kOnDemand; the early form keeps nothing for a second "
      "backward.");
  TORCH_CHECK(
      options.early_stop, here,
      ": Options::early_stop = false belongs to the form kOnDemand; the early form always runs to the end.");
}

const at::Tensor& first_defined(const Tensors& inputs, const Options& options) {
  for (const at::Tensor& input : inputs) {
    if (input.defined()) return input;
  }
  TORCH_CHECK(false, "checkpoint", options.name.empty() ? "" : " (" + options.name + ")",
              ": there is no tensor among the inputs of the function. What it needs a gradient for, other than "
              "parameters, must be an argument.");
}

bool runs_plainly(const Tensors& inputs) {
  return !at::GradMode::is_enabled() ||
         c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerFrontMode) ||
         std::any_of(inputs.begin(), inputs.end(), base::has_tangent);
}

Region::Region(Function function, Options options)
    : function_(std::move(function)),
      options_(std::move(options)),
      number_(regions.fetch_add(1, std::memory_order_relaxed)) {}

std::string Region::name() const {
  return c10::str("checkpointed region ", number_, options_.name.empty() ? "" : " (" + options_.name + ")");
}

Tensors Region::run_first(const Tensors& inputs, bool graph) {
  const std::vector<int64_t> versions = versions_of(inputs);
  if (options_.preserve_rng) rng_ = base::GeneratorStates::of_devices_in_use(inputs);
  Tensors outputs;
  {
    const PhaseScope phase(PhaseScope::Phase::kCheckpointing);
    std::optional<WithoutGraph> no_graph;
    if (!graph) no_graph.emplace();
    OuterWrites::Noting noting(writes_);
    outputs = function_(graph ? inputs : without_history(inputs));
  }
  rng_.keep_what_moved();
  writes_to_tensors_ = writes_.are_beyond(outputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    TORCH_CHECK(
        base::version_of(inputs[i]) == versions[i], "The function of ", name(), " changed tensor ", i,
        " of its inputs in place, so it cannot run again from the same inputs. Clone it first, or leave "
        "the operation out of the region.");
  }
  // The tangent came in with a captured tensor. The second run would not find it.
  TORCH_CHECK(
      std::none_of(outputs.begin(), outputs.end(), base::has_tangent), "The function of ", name(),
      " gave a tensor with a tangent of forward mode, though no input has one. Pass the tensor that brings it "
      "as an argument: then the region runs as the plain function.");
  if (options_.check_determinism) outputs_ = signatures_of(outputs, options_.checksum);
  return outputs;
}

Tensors Region::run_again(const Tensors& inputs) const {
  Tensors outputs;
  run_again_within(inputs, [&](const Function& function, const Tensors& arguments) -> std::optional<Tensors> {
    const WithoutGraph no_graph;
    for (const at::Tensor& output : function(without_history(arguments))) {
      outputs.push_back(apart_from_outer_writes(output));
    }
    return outputs;
  });
  return outputs;
}

OuterValues Region::run_again_within(const Tensors& inputs, const Call& call) const {
  const base::AuxiliarySpanScope span([this] {
    return base::AuxiliarySpan{.kind = base::AuxiliarySpan::Kind::kRecompute,
                               .name = options_.name.empty() ? "checkpointed region" : options_.name,
                               .number = static_cast<int64_t>(number_)};
  });
  const RunStateScope state(state_);
  const RngReplay rng(rng_);
  const PhaseScope phase(PhaseScope::Phase::kRecomputing);
  std::optional<OuterWrites::Undoing> undoing;
  if (!writes_.empty()) undoing.emplace(writes_);
  const std::optional<Tensors> outputs = call(function_, inputs);
  if (outputs && options_.check_determinism) check_outputs(*outputs);
  return undoing ? undoing->values() : OuterValues();
}

// Both would give wrong gradients without a word: a region's own backward reaches all parameters inside,
// wanted or not, and records no graph.
void Region::check_backward() const {
  TORCH_CHECK(base::Engine::get_default_engine().is_checkpoint_valid(),
              "Checkpointing is not compatible with .grad() or when an `inputs` parameter is passed to "
              ".backward(). Please use .backward() and do not pass its `inputs` argument, or give ",
              name(), " ", kOtherForm, ".");
  TORCH_CHECK(!at::GradMode::is_enabled(), "A backward with create_graph=true through ", name(),
              ": the form kEarly has no gradient of a gradient. Use ", kOtherForm, ".");
}

void Region::check_outputs(const Tensors& outputs) const {
  TORCH_CHECK(outputs.size() == outputs_.size(), "The recomputation of ", name(), " gave ", outputs.size(),
              " outputs, the first run ", outputs_.size(), ". A region must do the same each time it runs.");
  for (size_t i = 0; i < outputs.size(); ++i) {
    const TensorSignature again(outputs[i], options_.checksum);
    if (!(again == outputs_[i])) refuse("output", i, outputs_[i], again);
  }
}

void Region::refuse(const char* what, size_t index, const TensorSignature& first,
                    const TensorSignature& again) const {
  TORCH_CHECK(false, "The recomputation of ", name(), " gave another ", what, " ", index, ": ", first.text(),
              " in the first run, ", again.text(), " now. A region must do the same each time it runs.");
}

}  // namespace overdrive::checkpoint
