#include "checkpoint/early/early.h"

#include "checkpoint/early/segment.h"
#include "checkpoint/region/dependency.h"

#include <algorithm>
#include <utility>

namespace overdrive::checkpoint {

namespace {

Tensors::iterator first_with_gradient(Tensors& outputs) {
  return std::find_if(outputs.begin(), outputs.end(), [](const at::Tensor& output) {
    return is_differentiable(output) && output.requires_grad();
  });
}

}  // namespace

Checkpointing::Checkpointing(Function fn, Tensors inputs, Options options)
    : fn_(std::move(fn)), inputs_(std::move(inputs)), options_(std::move(options)) {
  TORCH_CHECK(fn_ != nullptr, "Checkpointing: the function is empty.");
  TORCH_CHECK(options_.form != Form::kOnDemand,
              "Checkpointing: the form on demand has no halves. Use checkpointed().");
  check_options("Checkpointing", options_, options_.form.value_or(Form::kEarly));
}

Checkpointing::~Checkpointing() = default;

Tensors Checkpointing::checkpoint() {
  TORCH_CHECK(!std::exchange(was_run_, true),
              "Checkpointing::checkpoint() was called twice. A Checkpointing is one call of its function; make "
              "another for the next.");
  const at::Device device = first_defined(inputs_, options_).device();
  if (runs_plainly(inputs_)) return fn_(inputs_);
  segment_ = std::make_shared<Segment>(std::move(fn_), inputs_, options_);
  Tensors outputs = segment_->run(inputs_);
  // A region without a tensor result would have no gradient, and no one would be told.
  TORCH_CHECK(
      !outputs.empty(), "checkpoint", options_.name.empty() ? "" : " (" + options_.name + ")",
      ": there is no tensor among the results of the function. Tensors are found in optionals, containers, "
      "tuples and pairs of the standard library; others, such as members of a class, get no gradient.");
  // The token requires a gradient, so the node has a place in the graph even where no input needs one.
  base::edge_list next{torch::autograd::impl::gradient_edge(dependency_token(device, true))};
  for (const at::Tensor& input : inputs_) {
    next.push_back(input.defined() ? torch::autograd::impl::gradient_edge(input) : base::Edge());
  }
  inputs_.clear();
  const base::NodePtr node = base::make_node<Checkpoint>(segment_, std::move(next));
  for (at::Tensor& output : outputs) {
    if (is_differentiable(output)) {
      output = with_history(output, node);
    } else if (output.defined()) {
      output = output.detach();
    }
  }
  return outputs;
}

at::Tensor Checkpointing::recompute_before(Tensors& outputs) {
  TORCH_CHECK(was_run_, "Checkpointing: checkpoint() comes before the recomputation, and was not called.");
  TORCH_CHECK(
      !std::exchange(is_tied_, true),
      "Checkpointing: the recomputation has its place already; recompute() or recompute_before() was called "
      "twice.");
  const auto first = first_with_gradient(outputs);
  if (segment_ == nullptr || first == outputs.end()) return {};
  auto [tensor, token] = wait_in_backward(*first);
  *first = std::move(tensor);
  const base::NodePtr node = base::make_node<Recompute>(
      std::move(segment_), base::edge_list{torch::autograd::impl::gradient_edge(token)});
  return with_history(token, node);
}

Tensors Checkpointing::recompute(Tensors outputs) {
  const at::Tensor token = recompute_before(outputs);
  if (token.defined()) {
    at::Tensor& first = *first_with_gradient(outputs);
    first = release_in_backward(first, token);
  }
  return outputs;
}

}  // namespace overdrive::checkpoint
