// Nodes that run their own apply(), with the autograd keys excluded. Grad mode is off, yet every operator would
// enter its autograd kernel first. A type is here only when its formula is one operator that makes new tensors:
// an operator that writes in place would not raise a version, and a view would not know its base.
#include "engine/own_nodes/table.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/generated/Functions.h>

namespace overdrive::engine::own {
namespace {

using namespace torch::autograd::generated;

OwnOutcome apply_below(OwnCall& call) {
  const at::AutoDispatchBelowADInplaceOrView below;
  call.results = call.node(std::move(call.gradients));
  return OwnOutcome::kRan;
}

struct Below {
  template <typename N>
  static constexpr bool kFits = true;
  template <typename N>
  static OwnOutcome run(N&, OwnCall& call) {
    return call.gradients[0].defined() ? apply_below(call) : OwnOutcome::kOddGradient;
  }
};

struct DenseEmbedding {
  template <typename N>
  static constexpr bool kFits = requires(N& node) { !node.sparse; };
  static OwnOutcome run(EmbeddingBackward0& node, OwnCall& call) {
    if (!call.gradients[0].defined()) return OwnOutcome::kOddGradient;
    return node.sparse ? OwnOutcome::kOddValue : apply_below(call);
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

}  // namespace overdrive::engine::own
