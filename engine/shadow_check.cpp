#include "engine/shadow_check.h"

#include "engine/counters.h"
#include "engine/run_memory.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <atomic>
#include <cstring>

namespace overdrive::engine {
namespace {

using namespace torch::autograd;

// What one engine made of a call.
struct Outcome {
  variable_list captured;
  variable_list leaf_gradients;
  std::exception_ptr error;
};

// The leaves that a call accumulates into. Empty and `has_hooks` when it cannot be run twice.
struct Leaves {
  std::vector<at::Tensor> tensors;
  bool has_hooks = false;
};

Leaves find_leaves(const BackwardCall& call) {
  Leaves leaves;
  std::unordered_set<Node*> seen;
  for (const Edge& root : call.roots) {
    if (!root.is_valid()) continue;
    RunMemoryLease memory(thread_context());
    memory->plan.build({root.function.get(), false, call.outputs, call.accumulate_grad});
    leaves.has_hooks = leaves.has_hooks || memory->plan.has_hooks();
    for (const PlannedNode& planned : memory->plan.nodes) {
      if (host::kind_of(*planned.node) != host::NodeKind::kAccumulateGrad || !seen.insert(planned.node).second)
        continue;
      leaves.tensors.push_back(static_cast<AccumulateGrad*>(planned.node)->variable);
    }
  }
  return leaves;
}

template <typename Engine>
Outcome observe(const std::vector<at::Tensor>& leaves, const Engine& engine) {
  Outcome outcome;
  try {
    outcome.captured = engine();
  } catch (...) {
    outcome.error = std::current_exception();
  }
  for (const at::Tensor& leaf : leaves) outcome.leaf_gradients.push_back(leaf.grad());
  return outcome;
}

Outcome run_on_stock(const BackwardCall& call, const std::vector<at::Tensor>& leaves) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor generator_state = generator.get_state();
  variable_list before;
  for (const at::Tensor& leaf : leaves) {
    before.push_back(leaf.grad());
    if (leaf.grad().defined()) leaf.mutable_grad() = leaf.grad().detach().clone();
  }
  variable_list gradients = call.gradients;
  Outcome outcome = observe(leaves, [&] {
    return Engine::get_base_engine().execute(call.roots, gradients, /*keep_graph=*/true, call.create_graph,
                                             call.accumulate_grad, call.outputs);
  });
  for (size_t i = 0; i < leaves.size(); ++i) leaves[i].mutable_grad() = before[i];
  generator.set_state(generator_state);
  return outcome;
}

// The dense values of a gradient, in order.
at::Tensor values_of(const at::Tensor& gradient) {
  at::Tensor dense = gradient.detach().resolve_conj().resolve_neg();
  if (dense.layout() != at::kStrided) dense = dense.to_dense();
  return dense.cpu().contiguous();
}

std::string element_name(int64_t flat, at::IntArrayRef sizes) {
  std::vector<int64_t> index(sizes.size());
  for (size_t dim = sizes.size(); dim-- > 0;) {
    index[dim] = flat % sizes[dim];
    flat /= sizes[dim];
  }
  return c10::str(at::IntArrayRef(index));
}

void compare(const std::string& what, const at::Tensor& stock, const at::Tensor& ours) {
  TORCH_CHECK(stock.defined() == ours.defined(), "OVERDRIVE_CHECK: ", what, " is ",
              stock.defined() ? "defined" : "undefined", " with stock and ",
              ours.defined() ? "defined" : "undefined", " with Overdrive.");
  if (!stock.defined()) return;
  TORCH_CHECK(stock.sizes() == ours.sizes() && stock.dtype() == ours.dtype() && stock.layout() == ours.layout(),
              "OVERDRIVE_CHECK: ", what, " is ", stock.toString(), stock.sizes(), " with stock and ",
              ours.toString(), ours.sizes(), " with Overdrive.");
  const at::Tensor expected = values_of(stock);
  const at::Tensor actual = values_of(ours);
  const size_t size = expected.element_size();
  const auto* a = static_cast<const char*>(expected.const_data_ptr());
  const auto* b = static_cast<const char*>(actual.const_data_ptr());
  for (int64_t i = 0; i < expected.numel(); ++i) {
    if (std::memcmp(a + size * i, b + size * i, size) == 0) continue;
    TORCH_CHECK(false, "OVERDRIVE_CHECK: ", what, " differs at element ", element_name(i, expected.sizes()),
                ": ", expected.flatten()[i].item(), " with stock, ", actual.flatten()[i].item(),
                " with Overdrive. Please report the program; OVERDRIVE=0 switches Overdrive off.");
  }
}

std::string leaf_name(size_t number, const at::Tensor& leaf) {
  std::string name = c10::str("the gradient of leaf ", number, " (", leaf.toString(), leaf.sizes());
  if (!leaf.name().empty()) name += c10::str(", named '", leaf.name(), "'");
  return name + ")";
}

}  // namespace

bool shadow_check_is_due(int every) {
  static std::atomic<uint64_t> calls{0};
  return every > 0 && calls.fetch_add(1, std::memory_order_relaxed) % static_cast<uint64_t>(every) == 0;
}

variable_list run_with_shadow_check(const BackwardCall& call, const std::function<variable_list()>& ours) {
  const Leaves leaves = find_leaves(call);
  if (leaves.has_hooks) {
    count(Count::kCheckSkipped);
    return ours();
  }
  const Outcome expected = run_on_stock(call, leaves.tensors);
  Outcome actual = observe(leaves.tensors, ours);
  count(Count::kChecked);
  if (actual.error) std::rethrow_exception(actual.error);
  TORCH_CHECK(!expected.error, "OVERDRIVE_CHECK: a backward fails with stock and succeeds with Overdrive.");
  for (size_t i = 0; i < actual.captured.size(); ++i) {
    compare(c10::str("result ", i), expected.captured[i], actual.captured[i]);
  }
  for (size_t i = 0; i < leaves.tensors.size(); ++i) {
    compare(leaf_name(i, leaves.tensors[i]), expected.leaf_gradients[i], actual.leaf_gradients[i]);
  }
  return std::move(actual.captured);
}

}  // namespace overdrive::engine
