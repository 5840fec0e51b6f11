// The options of LibTorch's own modules, as bytes: each class has a struct of its own, and most of them numbers
// alone.
#include "replay/recording/declared.h"

#include <torch/nn/modules.h>

#include <optional>

namespace overdrive::replay {

namespace {

namespace nn = torch::nn;

class OptionBytes {
 public:
  // Behind the struct itself, so that a vector is only looked into while it is the one that was seen.
  template <typename Options>
  void add(const Options& options) {
    values_.emplace_back(&options, sizeof options);
    if constexpr (requires { options.normalized_shape(); }) add_elements(options.normalized_shape());
    if constexpr (requires { options.cutoffs(); }) add_elements(options.cutoffs());
    if constexpr (requires { options.sizes(); }) add_elements(options.sizes());
    if constexpr (requires { options.size(); }) add_elements(options.size());
    if constexpr (requires { options.scale_factor(); }) add_elements(options.scale_factor());
  }
  std::vector<WatchedValue> take() { return std::move(values_); }

 private:
  template <typename T>
  void add_elements(const std::vector<T>& elements) {
    if (!elements.empty()) values_.emplace_back(elements.data(), elements.size() * sizeof(T));
  }
  template <typename T>
  void add_elements(const std::optional<std::vector<T>>& elements) {
    if (elements) add_elements(*elements);
  }
  // Numbers lie in the struct.
  template <typename T>
  void add_elements(const T&) {}

  std::vector<WatchedValue> values_;
};

template <typename Module>
bool note(const nn::Module& module, OptionBytes& bytes) {
  const auto* known = dynamic_cast<const Module*>(&module);
  if (!known) return false;
  // Recurrent modules compute by options of their common base.
  if constexpr (requires { known->options_base; }) bytes.add(known->options_base);
  if constexpr (requires { known->options; }) bytes.add(known->options);
  static_assert(
      requires { known->options_base; } || requires { known->options; });
  return true;
}

template <typename... Modules>
struct Known {
  static void note_options(const nn::Module& module, OptionBytes& bytes) {
    (void)(note<Modules>(module, bytes) || ...);
  }
};

// clang-format off
using All = Known<
    nn::AdaptiveAvgPool1dImpl, nn::AdaptiveAvgPool2dImpl, nn::AdaptiveAvgPool3dImpl,
    nn::AdaptiveLogSoftmaxWithLossImpl, nn::AdaptiveMaxPool1dImpl, nn::AdaptiveMaxPool2dImpl,
    nn::AdaptiveMaxPool3dImpl, nn::AlphaDropoutImpl, nn::AvgPool1dImpl, nn::AvgPool2dImpl,
    nn::AvgPool3dImpl, nn::BCELossImpl, nn::BCEWithLogitsLossImpl, nn::BatchNorm1dImpl, nn::BatchNorm2dImpl,
    nn::BatchNorm3dImpl, nn::BilinearImpl, nn::CELUImpl, nn::CTCLossImpl, nn::ConstantPad1dImpl,
    nn::ConstantPad2dImpl, nn::ConstantPad3dImpl, nn::Conv1dImpl, nn::Conv2dImpl, nn::Conv3dImpl,
    nn::ConvTranspose1dImpl, nn::ConvTranspose2dImpl, nn::ConvTranspose3dImpl, nn::CosineEmbeddingLossImpl,
    nn::CosineSimilarityImpl, nn::CrossEntropyLossImpl, nn::CrossMapLRN2dImpl, nn::DropoutImpl,
    nn::Dropout2dImpl, nn::Dropout3dImpl, nn::ELUImpl, nn::EmbeddingImpl, nn::EmbeddingBagImpl,
    nn::FeatureAlphaDropoutImpl, nn::FlattenImpl, nn::FoldImpl, nn::FractionalMaxPool2dImpl,
    nn::FractionalMaxPool3dImpl, nn::GELUImpl, nn::GLUImpl, nn::GRUImpl, nn::GRUCellImpl, nn::GroupNormImpl,
    nn::HardshrinkImpl, nn::HardtanhImpl, nn::HingeEmbeddingLossImpl, nn::HuberLossImpl,
    nn::InstanceNorm1dImpl, nn::InstanceNorm2dImpl, nn::InstanceNorm3dImpl, nn::KLDivLossImpl,
    nn::L1LossImpl, nn::LPPool1dImpl, nn::LPPool2dImpl, nn::LPPool3dImpl, nn::LSTMImpl, nn::LSTMCellImpl,
    nn::LayerNormImpl, nn::LeakyReLUImpl, nn::LinearImpl, nn::LocalResponseNormImpl, nn::LogSoftmaxImpl,
    nn::MSELossImpl, nn::MarginRankingLossImpl, nn::MaxPool1dImpl, nn::MaxPool2dImpl, nn::MaxPool3dImpl,
    nn::MaxUnpool1dImpl, nn::MaxUnpool2dImpl, nn::MaxUnpool3dImpl, nn::MultiLabelMarginLossImpl,
    nn::MultiLabelSoftMarginLossImpl, nn::MultiMarginLossImpl, nn::MultiheadAttentionImpl, nn::NLLLossImpl,
    nn::PReLUImpl, nn::PairwiseDistanceImpl, nn::PixelShuffleImpl, nn::PixelUnshuffleImpl,
    nn::PoissonNLLLossImpl, nn::RNNImpl, nn::RNNCellImpl, nn::RReLUImpl, nn::ReLUImpl, nn::ReLU6Impl,
    nn::ReflectionPad1dImpl, nn::ReflectionPad2dImpl, nn::ReflectionPad3dImpl, nn::ReplicationPad1dImpl,
    nn::ReplicationPad2dImpl, nn::ReplicationPad3dImpl, nn::SELUImpl, nn::SmoothL1LossImpl,
    nn::SoftMarginLossImpl, nn::SoftmaxImpl, nn::SoftminImpl, nn::SoftplusImpl, nn::SoftshrinkImpl,
    nn::ThresholdImpl, nn::TransformerImpl, nn::TransformerDecoderImpl, nn::TransformerDecoderLayerImpl,
    nn::TransformerEncoderImpl, nn::TransformerEncoderLayerImpl, nn::TripletMarginLossImpl,
    nn::TripletMarginWithDistanceLossImpl, nn::UnflattenImpl, nn::UnfoldImpl, nn::UpsampleImpl,
    nn::ZeroPad1dImpl, nn::ZeroPad2dImpl, nn::ZeroPad3dImpl>;
// clang-format on

}  // namespace

std::vector<WatchedValue> options_of(const torch::nn::Module& module) {
  OptionBytes bytes;
  All::note_options(module, bytes);
  return bytes.take();
}

}  // namespace overdrive::replay
