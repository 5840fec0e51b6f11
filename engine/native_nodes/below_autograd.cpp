// Nodes that run their own apply(), with the autograd keys excluded. Grad mode is off, yet every operator would
// enter its autograd kernel first. A type is here only when its formula is one operator that makes new tensors:
// an operator that writes in place would not raise a version, and a view would not know its base.
#include "engine/host/saved_variable.h"
#include "engine/native_nodes/table.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/generated/Functions.h>

namespace overdrive::engine::native_nodes {
namespace {

using namespace torch::autograd::generated;

using torch::autograd::SavedVariable;

// A tensor that was changed ends in an error, and to word it unpack() asks the tensor for its node. A view
// makes that node anew when it is asked, which needs the autograd keys: without them the view would lose its
// history. A hook is code of the program.
bool is_unchanged(const SavedVariable& saved) {
  if (saved.has_hooks()) return false;
  return host::read_saved(saved) != nullptr || !host::holds_tensor(saved);
}

// Looks at the fields that the types below have.
template <typename N>
bool saved_are_unchanged(N& node) {
  const std::lock_guard<std::mutex> lock(host::mutex_of(node));
  bool unchanged = true;
#define OVERDRIVE_LOOK_AT(field) \
  if constexpr (requires { is_unchanged(node.field); }) unchanged = unchanged && is_unchanged(node.field);
  OVERDRIVE_LOOK_AT(self_)
  OVERDRIVE_LOOK_AT(input_)
  OVERDRIVE_LOOK_AT(weight_)
  OVERDRIVE_LOOK_AT(bias_)
  OVERDRIVE_LOOK_AT(target_)
  OVERDRIVE_LOOK_AT(total_weight_)
  OVERDRIVE_LOOK_AT(running_mean_)
  OVERDRIVE_LOOK_AT(running_var_)
  OVERDRIVE_LOOK_AT(condition_)
  OVERDRIVE_LOOK_AT(indices_)
  OVERDRIVE_LOOK_AT(result_)
  OVERDRIVE_LOOK_AT(result1_)
  OVERDRIVE_LOOK_AT(result2_)
  OVERDRIVE_LOOK_AT(result3_)
#undef OVERDRIVE_LOOK_AT
  return unchanged;
}

struct Below {
  template <typename N>
  static constexpr bool kFits = true;
  template <typename N>
  static NativeOutcome run(N& node, NativeCall& call) {
    if (!call.gradients[0].defined()) return NativeOutcome::kOddGradient;
    if (!saved_are_unchanged(node)) return NativeOutcome::kOddSaved;
    const at::AutoDispatchBelowADInplaceOrView below;
    call.results = call.node(std::move(call.gradients));
    return NativeOutcome::kRan;
  }
};

struct DenseEmbedding {
  template <typename N>
  static constexpr bool kFits = requires(N& node) { !node.sparse; };
  static NativeOutcome run(EmbeddingBackward0& node, NativeCall& call) {
    return node.sparse ? NativeOutcome::kOddValue : Below::run(node, call);
  }
};

}  // namespace

void add_below_autograd(Table& table) {
  table.add<GeluBackward0, Below>("GeluBackward0");
  table.add<SiluBackward0, Below>("SiluBackward0");
  table.add<LeakyReluBackward0, Below>("LeakyReluBackward0");
  table.add<SoftplusBackward0, Below>("SoftplusBackward0");
  table.add<EluBackward0, Below>("EluBackward0");
  table.add<SoftmaxBackward0, Below>("SoftmaxBackward0");
  table.add<LogSoftmaxBackward0, Below>("LogSoftmaxBackward0");
  table.add<NllLossBackward0, Below>("NllLossBackward0");
  table.add<NativeLayerNormBackward0, Below>("NativeLayerNormBackward0");
  table.add<NativeBatchNormBackward0, Below>("NativeBatchNormBackward0");
  table.add<ConvolutionBackward0, Below>("ConvolutionBackward0");
  table.add<MaxPool2DWithIndicesBackward0, Below>("MaxPool2DWithIndicesBackward0");
  table.add<AvgPool2DBackward0, Below>("AvgPool2DBackward0");
  table.add<WhereBackward0, Below>("WhereBackward0");
  table.add<EmbeddingBackward0, DenseEmbedding>("EmbeddingBackward0");
}

}  // namespace overdrive::engine::native_nodes
