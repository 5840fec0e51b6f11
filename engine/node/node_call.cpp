#include "engine/node/node_call.h"

#include "engine/base/counters.h"
#include "engine/host/gradient_tensors.h"
#include "engine/node/borrowed_storage.h"
#include "engine/node/grad_sum.h"

#include <ATen/DeviceGuard.h>

namespace overdrive::engine {

using namespace torch::autograd;

namespace {
bool apply(Node& node, uint16_t native, variable_list& gradients, variable_list& outputs, const NodeCall& call,
           bool hooked) {
  if (native != 0 && call.run_native != nullptr) {
    if (call.user_code) hooked |= node.tensor_post_acc_grad_hooks() != nullptr;
    const NativeRefusal refusal =
        hooked && call.refusal == NativeRefusal::kNone ? NativeRefusal::kHook : call.refusal;
    if (call.run_native(native, node, gradients, outputs, call.views_are_seen, refusal)) return true;
  }
  if (call.user_code) show_views(gradients);
  if (!BorrowedStorage::in_use()) {
    outputs = node(std::move(gradients));
    return false;
  }
  const BorrowedStorage borrowed(gradients);
  outputs = node(std::move(gradients));
  borrowed.keep_out_of(outputs);
  return false;
}
bool has_pre_hooks(Node& node) {
  return !node.tensor_pre_hooks().empty() || !node.retains_grad_hooks().empty() || !node.pre_hooks().empty();
}
}  // namespace

void call_tensor_pre_hooks(Node& node, variable_list& gradients) {
  for (const auto& hook : node.tensor_pre_hooks()) gradients = (*hook)(gradients);
  for (const auto& [output, hook] : node.retains_grad_hooks()) gradients = (*hook)(gradients);
}

bool call_node(Node& node, uint16_t native, variable_list& gradients, variable_list& outputs,
               const NodeCall& call) {
  const bool hooked = has_pre_hooks(node);
  if (hooked) [[unlikely]] {
    if (call.user_code) show_views(gradients);
    call_tensor_pre_hooks(node, gradients);
    for (const auto& hook : node.pre_hooks()) gradients = (*hook)(gradients);
  }
  if (!call.keep_graph) node.will_release_variables();

  if (node.post_hooks().empty()) [[likely]] {
    const bool ran_native = apply(node, native, gradients, outputs, call, hooked);
    const bool below = call.may_run_native() && !call.views_are_seen && (ran_native || !call.user_code);
    check_gradients(node, outputs, below);
    // A post-hook that apply() added gets no inputs: they were given away.
    for (const auto& hook : node.post_hooks()) outputs = (*hook)(outputs, {});
    return ran_native;
  }
  // AccumulateGrad takes a gradient over when two references to it exist and the node has
  // post-hooks: ours, kept for them, and its own.
  {
    variable_list copy = gradients;
    apply(node, native, copy, outputs, call, /*hooked=*/true);
  }
  check_gradients(node, outputs, /*below_autograd=*/false);
  for (const auto& hook : node.post_hooks()) outputs = (*hook)(outputs, gradients);
  return false;
}

void check_for_nan(Node& node, const variable_list& gradients) {
  AutoGradMode no_grad(false);
  for (size_t i = 0; i < gradients.size(); ++i) {
    const at::Tensor& gradient = gradients[i];
    const at::OptionalDeviceGuard device(at::device_of(gradient));
    TORCH_CHECK(!gradient.defined() || !at::isnan(gradient)._is_any_true().item<bool>(), "Function '",
                node.name(), "' returned nan values in its ", i, "th output.");
  }
}

namespace {

bool same_sizes(c10::SymIntArrayRef expected, at::IntArrayRef got) {
  if (expected.size() != got.size()) return false;
  for (size_t i = 0; i < got.size(); ++i) {
    // Not maybe_as_int(): its optional goes over the stack, at a tenth of what a small node costs.
    if (expected[i].is_heap_allocated() || expected[i].as_int_unchecked() != got[i]) return false;
  }
  return true;
}

// True only when the host's check would accept the gradient, but for its sizes, and leave it as it is.
bool surely_accepted(const InputMetadata& expected, const at::Tensor& gradient) {
  const c10::TensorImpl& got = *gradient.unsafeGetTensorImpl();
  // Other kinds are rare on the CPU, and the host's check costs them little.
  if (!is_ordinary(got) || got.has_symbolic_sizes_strides()) return false;
  if (expected.was_default_constructed() || expected.is_nested_tensor()) return false;
  const at::ScalarType type = c10::typeMetaToScalarType(got.dtype());
  return expected.grad_dtype() == type && c10::isFloatingType(type) && expected.layout() == at::kStrided &&
         expected.device() == got.device();
}

// Sums as the host does, where it would. Apart, like the error, for what most nodes need lies in few registers.
[[gnu::noinline]] bool sum_to_fit(c10::SymIntArrayRef expected, at::Tensor& gradient, bool below_autograd) {
  at::DimVector sizes;
  if (at::GradMode::is_enabled() || !read_sizes(expected, sizes) || !can_reduce(gradient, sizes)) return false;
  gradient = reduce_gradient(std::move(gradient), sizes, below_autograd);
  return true;
}

[[gnu::noinline, noreturn]] void refuse_missing_input(size_t i, const Edge& edge) {
  TORCH_CHECK(false, "edge ", i, " leads to input ", edge.input_nr, " of ", edge.function->name(),
              ", which has ", edge.function->num_inputs(), " inputs. Was add_input_metadata() forgotten?");
}

bool all_surely_fit(const edge_list& edges, variable_list& gradients, bool below_autograd) {
  if (edges.size() != gradients.size()) return false;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const Edge& edge = edges[i];
    if (!edge.is_valid() || !gradients[i].defined()) continue;
    if (edge.input_nr >= edge.function->num_inputs()) [[unlikely]]
      refuse_missing_input(i, edge);
    const InputMetadata& expected = edge.function->input_metadata(edge.input_nr);
    if (!surely_accepted(expected, gradients[i])) return false;
    const c10::SymIntArrayRef sizes = expected.shape_as_dim_vector();
    if (same_sizes(sizes, gradients[i].sizes())) [[likely]]
      continue;
    if (!sum_to_fit(sizes, gradients[i], below_autograd)) return false;
  }
  return true;
}

}  // namespace

void check_gradients(Node& node, variable_list& gradients, bool below_autograd) {
  if (all_surely_fit(node.next_edges(), gradients, below_autograd)) [[likely]]
    return;
  count(base::counts::slow_validations);
  validate_outputs(node.next_edges(), gradients, [&](const std::string& what) {
    return c10::str("Function ", node.name(), " returned an ", what);
  });
}

void check_root_gradients(const edge_list& roots, variable_list& gradients) {
  if (all_surely_fit(roots, gradients, /*below_autograd=*/false)) [[likely]]
    return;
  count(base::counts::slow_validations);
  validate_outputs(roots, gradients, [](const std::string& what) { return what; });
}

}  // namespace overdrive::engine
