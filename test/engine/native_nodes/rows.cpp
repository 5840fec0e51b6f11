#include "test/engine/native_nodes/rows.h"

#include <ATen/ATen.h>

namespace overdrive::test {
namespace {

using Sizes = std::vector<std::vector<int64_t>>;

#define ROW(type, operands, ...)                                                                    \
  NativeRow {                                                                                       \
    type, #__VA_ARGS__, operands, [](const variable_list& in) -> at::Tensor { return __VA_ARGS__; } \
  }

const Sizes kOne = {{3, 4}};
const Sizes kOnes = {{2, 1, 3}};
const Sizes kEmpty = {{0, 4}};
const Sizes kNumber = {{}};
const Sizes kTwo = {{3, 4}, {3, 4}};
const Sizes kRow = {{3, 4}, {4}};
const Sizes kColumn = {{3, 4}, {3, 1}};
const Sizes kWithNumber = {{3, 4}, {}};
const Sizes kMatrices = {{3, 4}, {4, 5}};
const Sizes kBatches = {{2, 3, 4}, {2, 4, 5}};
const Sizes kImage = {{2, 2, 6, 6}};
const Sizes kWideImage = {{2, 3, 6, 6}, {4, 3, 3, 3}, {4}};
// Above the size from which the host's kernels use their threads.
const Sizes kWide = {{200, 300}, {200, 300}};

at::Tensor number(double value) { return at::scalar_tensor(value, at::kDouble); }
at::Tensor classes() { return at::tensor({1, 0, 3}, at::kLong); }
at::Tensor mask() { return at::arange(12).view({3, 4}).remainder(3).eq(0); }

std::vector<NativeRow> elementwise() {
  return {
      ROW("AddBackward0", kTwo, in[0] + in[1]),
      ROW("AddBackward0", kRow, in[0] + in[1]),
      ROW("AddBackward0", kColumn, in[1] + in[0]),
      ROW("AddBackward0", kOne, in[0] + in[0]),
      ROW("AddBackward0", kWithNumber, in[0] + in[1]),
      ROW("AddBackward0", kTwo, at::add(in[0], in[1], 2)),
      ROW("AddBackward1", kOne, in[0] + 2),
      ROW("SubBackward0", kTwo, in[0] - in[1]),
      ROW("SubBackward0", kRow, in[1] - in[0]),
      ROW("SubBackward0", kOne, at::ones_like(in[0]) - in[0]),
      ROW("SubBackward0", kTwo, at::sub(in[0], in[1], 0.5)),
      ROW("SubBackward1", kOne, in[0] - 2),
      ROW("NegBackward0", kOne, -in[0]),
      ROW("NegBackward0", kEmpty, -in[0]),
      ROW("NegBackward0", kWide, -(in[0] + in[1])),
      ROW("MulBackward0", kTwo, in[0] * in[1]),
      ROW("MulBackward0", kOne, in[0] * in[0]),
      ROW("MulBackward0", kOne, in[0] * in[0].detach()),
      ROW("MulBackward0", kRow, in[0] * in[1]),
      ROW("MulBackward0", kColumn, in[1] * in[0]),
      ROW("MulBackward0", kWithNumber, in[0] * in[1]),
      ROW("MulBackward0", kNumber, in[0] * in[0]),
      ROW("MulBackward0", kNumber, in[0] * number(1.7)),
      ROW("MulBackward0", kOne, in[0] * number(1.7)),
      ROW("MulBackward0", kOne, in[0] * at::scalar_tensor(3, at::kLong)),
      ROW("MulBackward0", kOne, in[0] * at::scalar_tensor(true, at::kBool)),
      ROW("MulBackward0", kEmpty, in[0] * in[0]),
      ROW("MulBackward0", kWide, in[0] * in[1]),
      ROW("MulBackward1", kOne, in[0] * 1.7),
      ROW("MulBackward1", kOnes, in[0] * 3),
      ROW("MulBackward1", kNumber, in[0] * 1.7),
      ROW("MulBackward1", kOne, in[0] * true),
      ROW("DivBackward0", kTwo, in[0] / in[1]),
      ROW("DivBackward0", kRow, in[0] / in[1]),
      ROW("DivBackward0", kOne, in[0] / number(0.3)),
      ROW("DivBackward0", kWithNumber, in[0] / in[1]),
      ROW("DivBackward0", kOne, in[0] / in[0]),
      ROW("DivBackward0", kOne, at::ones_like(in[0]) / in[0]),
      ROW("DivBackward1", kOne, in[0] / 0.3),
      ROW("DivBackward1", kNumber, in[0] / 0.3),
      ROW("DivBackward1", kOnes, in[0] / 3),
      ROW("ReluBackward0", kOne, at::relu(in[0])),
      ROW("ReluBackward0", kEmpty, at::relu(in[0])),
      ROW("SigmoidBackward0", kOne, at::sigmoid(in[0])),
      ROW("SigmoidBackward0", kOnes, at::sigmoid(in[0])),
      ROW("TanhBackward0", kOne, at::tanh(in[0])),
      ROW("TanhBackward0", kWide, at::tanh(in[0] + in[1])),
      ROW("ExpBackward0", kOne, at::exp(in[0])),
      ROW("LogBackward0", kOne, at::log(in[0])),
      ROW("SqrtBackward0", kOne, at::sqrt(in[0])),
      ROW("PowBackward0", kOne, at::pow(in[0], 2)),
      ROW("PowBackward0", kOne, at::pow(in[0], 3.0)),
      ROW("PowBackward0", kOne, at::pow(in[0], 2.5)),
      ROW("PowBackward0", kOne, at::pow(in[0], 0)),
      ROW("CloneBackward0", kOne, in[0].clone()),
  };
}

std::vector<NativeRow> products() {
  return {
      ROW("MmBackward0", kMatrices, at::mm(in[0], in[1])),
      ROW("MmBackward0", (Sizes{{3, 4}, {5, 4}}), at::mm(in[0], in[1].t())),
      ROW("MmBackward0", (Sizes{{4, 3}, {4, 5}}), at::mm(in[0].t(), in[1])),
      ROW("MmBackward0", (Sizes{{3, 3}}), at::mm(in[0], in[0])),
      ROW("MmBackward0", (Sizes{{0, 4}, {4, 5}}), at::mm(in[0], in[1])),
      ROW("MmBackward0", (Sizes{{1, 4}, {4, 1}}), at::mm(in[0], in[1])),
      ROW("MmBackward0", kMatrices, at::mm(in[0].detach(), in[1])),
      ROW("MmBackward0", kMatrices, at::mm(in[0], in[1].detach())),
      ROW("AddmmBackward0", (Sizes{{5}, {3, 4}, {4, 5}}), at::addmm(in[0], in[1], in[2])),
      ROW("AddmmBackward0", (Sizes{{5}, {3, 4}, {5, 4}}), at::linear(in[1].detach(), in[2], in[0])),
      ROW("AddmmBackward0", (Sizes{{5}, {3, 4}, {5, 4}}), at::linear(in[1], in[2].detach(), in[0].detach())),
      ROW("AddmmBackward0", (Sizes{{5}, {3, 4}, {5, 4}}), at::linear(in[1], in[2], in[0])),
      ROW("AddmmBackward0", (Sizes{{3, 5}, {3, 4}, {4, 5}}), at::addmm(in[0], in[1], in[2])),
      ROW("AddmmBackward0", (Sizes{{5}, {3, 4}, {4, 5}}), at::addmm(in[0], in[1], in[2], 0.5, 2)),
      ROW("BmmBackward0", kBatches, at::bmm(in[0], in[1])),
      ROW("BmmBackward0", (Sizes{{2, 3, 4}, {2, 5, 4}}), at::bmm(in[0], in[1].transpose(1, 2))),
  };
}

std::vector<NativeRow> shapes() {
  return {
      ROW("TBackward0", kOne, in[0].t()),
      ROW("TBackward0", (Sizes{{4}}), in[0].t()),
      ROW("TransposeBackward0", (Sizes{{2, 3, 4}}), in[0].transpose(0, -1)),
      ROW("TransposeBackward0", kOne, in[0].transpose(1, 1)),
      ROW("PermuteBackward0", (Sizes{{2, 3, 4}}), in[0].permute({2, 0, -2})),
      ROW("ViewBackward0", (Sizes{{2, 3, 4}}), in[0].view({6, 4})),
      ROW("ViewBackward0", kOnes, in[0].view({1, 6, 1})),
      ROW("ViewBackward0", kEmpty, in[0].view({4, 0})),
      ROW("UnsafeViewBackward0", (Sizes{{2, 3, 4}, {4, 5}}), at::matmul(in[0], in[1])),
      ROW("UnsafeViewBackward0", (Sizes{{2, 3, 4}}), at::_unsafe_view(in[0], {6, 4})),
      ROW("ReshapeAliasBackward0", kOne, at::_reshape_alias(in[0], {12}, {1})),
      ROW("SqueezeBackward0", kOnes, in[0].squeeze()),
      ROW("SqueezeBackward0", kOne, in[0].squeeze()),
      ROW("SqueezeBackward1", kOnes, in[0].squeeze(1)),
      ROW("SqueezeBackward1", kOnes, in[0].squeeze(-3)),
      ROW("UnsqueezeBackward0", kOne, in[0].unsqueeze(1)),
      ROW("UnsqueezeBackward0", kOne, in[0].unsqueeze(-1)),
      ROW("ExpandBackward0", kOnes, in[0].expand({2, 5, 3})),
      ROW("ExpandBackward0", kOne, in[0].expand({6, 3, 4})),
      ROW("ExpandBackward0", kOne, in[0].expand({3, 4})),
      ROW("ExpandBackward0", kNumber, in[0].expand({3, 4})),
      ROW("ExpandBackward0", (Sizes{{1, 1}}), in[0].expand({2, 3, 4})),
  };
}

std::vector<NativeRow> reductions() {
  return {
      ROW("SumBackward0", kOne, in[0].sum()),
      ROW("SumBackward0", kOnes, in[0].sum()),
      ROW("SumBackward0", kNumber, in[0].sum()),
      ROW("SumBackward1", kOne, in[0].sum(1)),
      ROW("SumBackward1", kOne, in[0].sum(-2, true)),
      ROW("SumBackward1", (Sizes{{2, 3, 4}}), in[0].sum(at::IntArrayRef{0, 2})),
      ROW("SumBackward1", kOne, in[0].sum(at::IntArrayRef{})),
      ROW("MeanBackward0", kOne, in[0].mean()),
      ROW("MeanBackward0", kOnes, in[0].mean()),
      ROW("MeanBackward0", kNumber, in[0].mean()),
      ROW("MeanBackward1", kOne, in[0].mean(1)),
      ROW("MeanBackward1", kOne, in[0].mean(0, true)),
      ROW("MeanBackward1", (Sizes{{2, 3, 4}}), in[0].mean(at::IntArrayRef{0, 2})),
      ROW("MeanBackward1", (Sizes{{2, 3, 4}}), in[0].mean({1})),
      ROW("MseLossBackward0", kTwo, at::mse_loss(in[0], in[1])),
      ROW("MseLossBackward0", kTwo, at::mse_loss(in[0], in[1], at::Reduction::Sum)),
      ROW("MseLossBackward0", kTwo, at::mse_loss(in[0], in[1], at::Reduction::None)),
      ROW("MseLossBackward0", kTwo, at::mse_loss(in[0], in[1].detach())),
  };
}

std::vector<NativeRow> parts() {
  return {
      ROW("SelectBackward0", kOne, in[0].select(0, 1)),
      ROW("SelectBackward0", kOne, in[0].select(1, -1)),
      ROW("SelectBackward0", (Sizes{{4}}), in[0].select(0, 2)),
      ROW("SliceBackward0", kOne, in[0].slice(0, 1, 3)),
      ROW("SliceBackward0", kOne, in[0].slice(1, -3, -1)),
      ROW("SliceBackward0", kOne, in[0].slice(1, 0, 4, 2)),
      ROW("SliceBackward0", kOne, in[0].slice(0, 5, 9)),
      ROW("SplitBackward0", kOne, in[0].split(2, 1)[0] * in[0].split(2, 1)[1]),
      ROW("SplitBackward0", kOne, at::cat(in[0].split(2, 0), 0)),
      ROW("SplitBackward0", kOne, in[0].split(2, 0)[0]),
      ROW("SplitBackward0", kOne, at::cat(in[0].chunk(2, -1), 1)),
      ROW("SplitWithSizesBackward0", kOne, at::cat(in[0].split_with_sizes({1, 3}, 1), 1)),
      ROW("SplitWithSizesBackward0", kOne, at::cat(in[0].split_with_sizes({1, 2}, 0), 0)),
      ROW("UnbindBackward0", kOne, in[0].unbind(0)[0] + in[0].unbind(0)[1]),
      ROW("UnbindBackward0", kOne, at::stack(in[0].unbind(1), 0)),
      ROW("UnbindBackward0", (Sizes{{3}}), at::stack(in[0].unbind(0), 0)),
      ROW("CatBackward0", kTwo, at::cat({in[0], in[1]}, 0)),
      ROW("CatBackward0", kTwo, at::cat({in[0], in[1], in[0]}, -1)),
      ROW("CatBackward0", (Sizes{{3, 4}, {0}}), at::cat({in[0], in[1]}, 0)),
      ROW("StackBackward0", kTwo, at::stack({in[0], in[1]}, 0)),
      ROW("StackBackward0", kTwo, at::stack({in[0], in[1], in[0]}, -1)),
  };
}

std::vector<NativeRow> below_autograd() {
  return {
      ROW("GeluBackward0", kOne, at::gelu(in[0])),
      ROW("SiluBackward0", kOne, at::silu(in[0])),
      ROW("LeakyReluBackward0", kOne, at::leaky_relu(in[0], 0.1)),
      ROW("SoftplusBackward0", kOne, at::softplus(in[0])),
      ROW("EluBackward0", kOne, at::elu(in[0])),
      ROW("SoftmaxBackward0", kOne, at::softmax(in[0], 1)),
      ROW("SoftmaxBackward0", kOne, at::softmax(in[0], 0)),
      ROW("LogSoftmaxBackward0", kOne, at::log_softmax(in[0], 1)),
      ROW("NllLossBackward0", kOne, at::nll_loss(in[0], classes())),
      ROW("NllLossBackward0", kOne, at::cross_entropy_loss(in[0], classes())),
      ROW("NativeLayerNormBackward0", (Sizes{{3, 4}, {4}, {4}}), at::layer_norm(in[0], {4}, in[1], in[2])),
      ROW("NativeBatchNormBackward0", (Sizes{{3, 4}, {4}, {4}}),
          std::get<0>(at::native_batch_norm(in[0], in[1], in[2], {}, {}, true, 0.1, 1e-5))),
      ROW("ConvolutionBackward0", kWideImage, at::conv2d(in[0], in[1], in[2])),
      ROW("ConvolutionBackward0", kWideImage, at::conv2d(in[0].detach(), in[1], in[2], 2, 1)),
      ROW("MaxPool2DWithIndicesBackward0", kImage, std::get<0>(at::max_pool2d_with_indices(in[0], 2))),
      ROW("AvgPool2DBackward0", kImage, at::avg_pool2d(in[0], 2)),
      ROW("WhereBackward0", kTwo, at::where(mask(), in[0], in[1])),
      ROW("EmbeddingBackward0", (Sizes{{5, 4}}), at::embedding(in[0], classes())),
      ROW("EmbeddingBackward0", (Sizes{{5, 4}}), at::embedding(in[0], classes(), -1, false, true)),
      // Any leaf has one.
      ROW("torch::autograd::AccumulateGrad", kOne, in[0] * 2),
      ROW("torch::autograd::AccumulateGrad", (Sizes{{3, 4}}), in[0].t().contiguous()),
  };
}
#undef ROW

std::vector<NativeRow> all() {
  std::vector<NativeRow> rows;
  for (auto* family : {elementwise, products, shapes, reductions, parts, below_autograd}) {
    for (NativeRow& row : family()) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

const std::vector<NativeRow>& native_rows() {
  static const auto* rows = new std::vector<NativeRow>(all());
  return *rows;
}

}  // namespace overdrive::test
