#include "replay/recording/recorded_function.h"

#include "replay/record/environment.h"
#include "replay/record/refusals.h"
#include "replay/recording/declared.h"

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <algorithm>

namespace overdrive::replay {

namespace {

// The function, which tells a recording what it may look at: zero_grad() takes gradients away without an
// operator, of parameters that no operator uses, too.
Function noting_leaves(Function function, const CaptureOptions& options) {
  if (options.modules.empty() && optimizers_of(options).empty()) return function;
  return [function = std::move(function), &options](const std::vector<at::Tensor>& inputs) {
    std::vector<at::Tensor> results = function(inputs);
    Recorder* const recorder = Recorder::active();
    if (!recorder) return results;
    for (const auto& module : options.modules) recorder->note_owners(module->parameters());
    for (const auto* optimizer : optimizers_of(options)) {
      for (const auto& group : optimizer->param_groups()) recorder->note_owners(group.params());
    }
    return results;
  };
}

// A function that casts are given to beside its inputs.
Function taking(size_t inputs, Function function) {
  if (!is_in_autocast_context()) return function;
  return [inputs, function = std::move(function)](const std::vector<at::Tensor>& given) {
    return given.size() <= inputs ? function(given) : function({given.begin(), given.begin() + inputs});
  };
}

}  // namespace

RecordedFunction::RecordedFunction(const Function& function, const CaptureOptions& options, size_t inputs,
                                   std::shared_ptr<PartCounts> counts, int64_t number)
    : part_(counts ? std::make_unique<Part>(taking(inputs, function), std::move(counts), number) : nullptr),
      function_(
          part_ ? noting_leaves(
                      [this](const std::vector<at::Tensor>& given) { return part_->function().record(given); },
                      options)
                : taking(inputs, noting_leaves(function, options))) {}

std::vector<at::Tensor> RecordedFunction::eager(const std::vector<at::Tensor>& inputs) const {
  if (part_) return part_->function().eager(inputs);
  std::vector<at::Tensor> results = function_(inputs);
  detach_all(results);
  return results;
}

std::vector<at::Tensor> RecordedFunction::plain(const std::vector<at::Tensor>& inputs) const {
  return part_ ? part_->function().plain(inputs) : eager(inputs);
}

std::unique_lock<std::recursive_mutex> RecordedFunction::take_placeholders() const {
  if (!part_) return {};
  auto lock = part_->lock();
  part_->function().refill();
  return lock;
}

Refusal RecordedFunction::held_by(const Program& recorded) const {
  if (!recorded.is_part()) return "";
  Refusal found = still_held(recorded);
  if (found.empty() && part_->function().is_leaf_held())
    return {"A leaf that the function made in one call is still held after the next, and has a gradient.",
            RefusalKind::kHeld};
  return found;
}

void RecordedFunction::adopt(const std::shared_ptr<ReplayRun>& run) const {
  if (part_) part_->adopt(run);
}

void RecordedFunction::forget() const {
  if (part_) part_->forget();
}

Refusal still_held(const Program& before) {
  for (const Memory& memory : before.memories) {
    // Who keeps a gradient finds it unchanged (guard/kept_gradients.h).
    if (memory.origin != Origin::kMade || memory.weak.expired() || memory.is_left_as_gradient) continue;
    const bool returned = std::any_of(before.results.begin(), before.results.end(), [&](int value) {
      return value >= 0 && &before.memory_of(value) == &memory;
    });
    if (returned) continue;
    const std::string& name = before.operators[memory.first].name;
    return {c10::str("A tensor that ", name,
                     " made in one call is still held after the next; return tensors that are to be kept."),
            name, RefusalKind::kHeld};
  }
  return "";
}

}  // namespace overdrive::replay
