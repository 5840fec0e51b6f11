#include "replay/part/part_gradients.h"

#include "engine/base/tensor_version.h"
#include "replay/guard/leaf_gradients.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <unordered_set>

namespace overdrive::replay {

namespace {

constexpr const char* kOfAnInput =
    "The function changes the gradient of an argument, or takes it away; do this outside of the function.";
constexpr const char* kAnother =
    "The function gives a parameter another gradient, as zero_grad(false) of a module does; set it outside of "
    "the function. zero_grad() alone takes gradients away, which may be done inside.";
constexpr const char* kNowAndThen =
    "The function takes gradients away in some calls and not in others; call zero_grad() outside of the "
    "function.";

PartGradients::Before now(const at::Tensor& leaf) {
  PartGradients::Before result{.leaf = WeakTensor(leaf.getIntrusivePtr()), .gradient = std::nullopt};
  const at::Tensor& gradient = leaf.unsafeGetTensorImpl()->grad();
  if (!gradient.defined()) return result;
  result.gradient = WeakTensor(gradient.getIntrusivePtr());
  result.version = base::version_of(gradient);
  return result;
}

bool is_same(const std::optional<WeakTensor>& before, const at::Tensor& now) {
  return (before ? before->_unsafe_get_target() : nullptr) ==
         (now.defined() ? now.unsafeGetTensorImpl() : nullptr);
}

}  // namespace

void PartGradients::learn(const Program& program) {
  leaves_.clear();
  inputs_had_one_.clear();
  std::unordered_set<const c10::TensorImpl*> known;
  for (const WeakTensor& input : program.inputs) known.insert(input._unsafe_get_target());
  const auto add = [&](const WeakTensor& weak) {
    const at::Tensor leaf(weak.lock());
    if (may_have_gradient(leaf) && known.insert(leaf.unsafeGetTensorImpl()).second)
      leaves_.push_back({.weak = weak, .raw = leaf.unsafeGetTensorImpl()});
  };
  for (const OutsideTensor& outside : program.outside) add(outside.weak);
  for (const WeakTensor& leaf : program.leaves) add(leaf);
}

std::vector<PartGradients::Before> PartGradients::before(const std::vector<at::Tensor>& inputs) const {
  std::vector<Before> result;
  for (const at::Tensor& input : inputs)
    result.push_back(may_have_gradient(input) ? now(input) : Before{WeakTensor(input.getIntrusivePtr()), {}});
  for (const Leaf& leaf : leaves_) {
    const at::Tensor alive(leaf.weak.lock());
    result.push_back(alive.defined() ? now(alive) : Before{leaf.weak, {}});
  }
  return result;
}

std::string PartGradients::note(const std::vector<Before>& before, const Recorder& recorder) {
  const size_t inputs = before.size() - leaves_.size();
  inputs_had_one_.resize(inputs);
  for (size_t i = 0; i < inputs; ++i) {
    const at::Tensor input(before[i].leaf.lock());
    if (!may_have_gradient(input)) continue;
    const at::Tensor& gradient = input.unsafeGetTensorImpl()->grad();
    const bool is_left_alone = is_same(before[i].gradient, gradient) &&
                               (!gradient.defined() || base::version_of(gradient) == before[i].version);
    if (!is_left_alone) return kOfAnInput;
    if (gradient.defined()) inputs_had_one_[i] = true;
  }
  for (size_t i = 0; i < leaves_.size(); ++i) {
    if (std::string reason = note(before[inputs + i], recorder, leaves_[i]); !reason.empty()) return reason;
  }
  return "";
}

std::string PartGradients::note(const Before& before, const Recorder& recorder, Leaf& leaf) const {
  if (leaf.weak.expired()) return "";
  const at::Tensor& gradient = leaf.raw->grad();
  leaf.has_one = before.gradient.has_value();
  if (!before.gradient) {
    leaf.had_none = true;
    return gradient.defined() ? kAnother : "";
  }
  if (gradient.defined() && !is_same(before.gradient, gradient)) return kAnother;
  const bool was_left = leaf.had_one && !leaf.is_taken;
  leaf.had_one = true;
  const at::Tensor old(before.gradient->lock());
  const bool is_used =
      old.defined() && (recorder.knows_outside(old) || base::version_of(old) != before.version);
  if (is_used) leaf.used = before.gradient;
  const bool is_taken = !gradient.defined();
  if (is_taken ? was_left : leaf.is_taken) return kNowAndThen;
  leaf.is_taken = is_taken;
  return "";
}

bool PartGradients::is_unseen(const std::vector<at::Tensor>& inputs) const {
  for (size_t i = 0; i < inputs.size() && i < inputs_had_one_.size(); ++i) {
    if (!inputs_had_one_[i] && may_have_gradient(inputs[i]) &&
        inputs[i].unsafeGetTensorImpl()->grad().defined())
      return true;
  }
  return std::any_of(leaves_.begin(), leaves_.end(), [](const Leaf& leaf) {
    if ((leaf.had_one && leaf.had_none) || leaf.weak.expired()) return false;
    return leaf.raw->grad().defined() ? !leaf.had_one : !leaf.had_none;
  });
}

bool PartGradients::are_as_noted() const {
  return std::all_of(leaves_.begin(), leaves_.end(), [](const Leaf& leaf) {
    return leaf.weak.expired() || leaf.raw->grad().defined() == leaf.has_one;
  });
}

const char* PartGradients::difference() const {
  for (const Leaf& leaf : leaves_) {
    if (leaf.used && !leaf.weak.expired() && !is_same(leaf.used, leaf.raw->grad()))
      return "a gradient that the function uses was replaced, or taken away; where it fills gradients with "
             "zeros, as zero_grad(set_to_none=False) does, call that outside of the function";
  }
  return nullptr;
}

void PartGradients::take_away() const {
  for (const Leaf& leaf : leaves_) {
    if (leaf.is_taken && !leaf.weak.expired() && leaf.raw->grad().defined()) leaf.raw->mutable_grad().reset();
  }
}

PartGradients::PutBack::PutBack(const PartGradients& gradients, const std::vector<at::Tensor>& inputs) {
  const at::NoGradGuard no_graph;
  std::vector<at::Tensor> copies;
  const auto keep = [&](const at::Tensor& leaf) {
    if (!may_have_gradient(leaf)) return;
    const at::Tensor& gradient = leaf.unsafeGetTensorImpl()->grad();
    kept_.emplace_back(leaf, gradient);
    copies.push_back(gradient.defined() ? gradient.clone() : gradient);
  };
  for (const at::Tensor& input : inputs) keep(input);
  for (const Leaf& leaf : gradients.leaves_) keep(at::Tensor(leaf.weak.lock()));
  for (size_t i = 0; i < kept_.size(); ++i)
    kept_[i].first.unsafeGetTensorImpl()->mutable_grad() = std::move(copies[i]);
}

PartGradients::PutBack::~PutBack() {
  for (auto& [leaf, gradient] : kept_) {
    c10::TensorImpl& impl = *leaf.unsafeGetTensorImpl();
    if (impl.grad().unsafeGetTensorImpl() != gradient.unsafeGetTensorImpl()) impl.mutable_grad() = gradient;
  }
}

}  // namespace overdrive::replay
