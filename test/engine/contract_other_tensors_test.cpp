// Whole graphs of tensors that are not dense floats on the CPU: gradients, layout and
// type of .grad, and errors as in stock. Lazy tensors are missing: LibTorch's CPU build
// registers no lazy backend in a process without Python.
#include "test/support/caught.h"
#include "test/support/contract.h"
#include "test/support/hooks.h"

#include <ATen/FunctionalTensorWrapper.h>

namespace overdrive::test {
namespace {

OVERDRIVE_CONTRACT(OtherTensors);

// What .grad of each leaf is after `loss(leaf)` ran backward, or the error.
std::string backward_of(const at::Tensor& prototype, const std::function<at::Tensor(const at::Tensor&)>& loss) {
  std::ostringstream text;
  const auto error = message_of([&] {
    auto x = prototype.detach().requires_grad_(true);
    for (int i = 0; i < 2; ++i) {
      auto y = loss(x);
      y.backward(torch::ones_like(y));
      text << x.grad().toString() << " " << (x.is_nested() ? "nested" : "plain");
      if (!x.is_nested()) text << x.grad().sizes();
      if (!x.is_meta() && !x.is_nested()) text << " " << at::real(x.grad().to_dense()).sum().item();
      text << "; ";
    }
  });
  return text.str() + error.type + " " + error.message.substr(0, error.message.find('\n'));
}

TYPED_TEST(OtherTensors, MetaTensorsGiveShapesOnly) {
  const auto scenario = [] {
    return backward_of(torch::ones({2, 3}, torch::kMeta),
                       [](const at::Tensor& x) { return (x * 2 + x).sum(); });
  };
  EXPECT_EQ(scenario(), "MetaFloatType plain[2, 3]; MetaFloatType plain[2, 3];  ");
  EXPECT_EQ(scenario(), on<StockEngine>(scenario));
}

TYPED_TEST(OtherTensors, ComplexTensors) {
  const auto prototype = torch::full({3}, c10::complex<double>(1, 2), torch::kComplexDouble);
  const auto scenario = [&] {
    return backward_of(prototype, [](const at::Tensor& x) { return at::real(x * x.conj()).sum(); }) +
           backward_of(prototype, [](const at::Tensor& x) { return at::abs(x.conj() * 2).sum(); }) +
           backward_of(prototype, [](const at::Tensor& x) { return (at::view_as_real(x) * 3).sum(); });
  };
  EXPECT_EQ(scenario(), on<StockEngine>(scenario));
}

TYPED_TEST(OtherTensors, ARealLeafOfAComplexOpGetsARealGradient) {
  auto x = torch::ones({2}, torch::requires_grad());
  auto z = x * torch::full({2}, c10::complex<float>(0, 1), torch::kComplexFloat);
  at::real(z * z).sum().backward();
  EXPECT_EQ(x.grad().scalar_type(), at::kFloat);
  EXPECT_EQ(value_of(x.grad()), -4);
}

TYPED_TEST(OtherTensors, SparseLeavesAndSparseGradients) {
  const auto dense = torch::eye(3);
  const auto scenario = [&] {
    return backward_of(dense.to_sparse(), [](const at::Tensor& x) { return at::_sparse_sum(x * 2); }) +
           backward_of(dense.to_sparse(), [](const at::Tensor& x) { return x.to_dense().sum(); }) +
           backward_of(dense.to_sparse_csr(), [](const at::Tensor& x) { return x.to_dense().sum(); }) +
           backward_of(dense, [&](const at::Tensor& x) { return at::mm(dense.to_sparse(), x).sum(); });
  };
  EXPECT_EQ(scenario(), on<StockEngine>(scenario));
}

TYPED_TEST(OtherTensors, AnEmbeddingWithSparseGradientsAddsUp) {
  const auto scenario = [] {
    auto weight = torch::ones({5, 2}, torch::requires_grad());
    const auto indices = torch::tensor({1, 3, 1}, torch::kLong);
    std::ostringstream text;
    for (const bool sparse : {true, true, false, true}) {
      auto twice =
          at::embedding(weight, indices, -1, false, sparse) + at::embedding(weight, indices, -1, false, sparse);
      twice.sum().backward();
      text << weight.grad().layout() << " " << value_of(weight.grad()) << "; ";
    }
    return text.str();
  };
  EXPECT_EQ(scenario(), "Sparse 12; Sparse 24; Strided 36; Strided 48; ");
  EXPECT_EQ(scenario(), on<StockEngine>(scenario));
}

TYPED_TEST(OtherTensors, NestedTensors) {
  const auto scenario = [] {
    const auto nested = at::_nested_tensor_from_tensor_list({torch::ones({2, 4}), torch::ones({3, 4})});
    auto weight = torch::ones({4, 4}, torch::requires_grad());
    auto text = backward_of(
        nested, [&](const at::Tensor& x) { return at::linear(at::relu(x), weight).to_padded_tensor(0).sum(); });
    return text + std::to_string(value_of(weight.grad()));
  };
  EXPECT_EQ(scenario(), on<StockEngine>(scenario));
}

TYPED_TEST(OtherTensors, HalfAndBFloat16) {
  for (const auto type : {torch::kHalf, torch::kBFloat16, torch::kDouble}) {
    const auto scenario = [type] {
      return backward_of(torch::full({4}, 0.5, type),
                         [](const at::Tensor& x) { return (x * x + x.to(at::kFloat)).sum(); });
    };
    EXPECT_EQ(scenario(), on<StockEngine>(scenario));
  }
}

TYPED_TEST(OtherTensors, QuantisedTensorsWhereStockTakesThem) {
  const auto scenario = [] {
    return backward_of(torch::linspace(-1, 1, 8), [](const at::Tensor& x) {
      return at::fake_quantize_per_tensor_affine(x, 0.1, 0, -4, 4).sum();
    });
  };
  EXPECT_EQ(scenario(), on<StockEngine>(scenario));
}

TYPED_TEST(OtherTensors, FunctionalWrappersPassThrough) {
  const auto scenario = [] {
    std::ostringstream text;
    const auto error = message_of([&] {
      auto x = at::functionalization::impl::to_functional_tensor(torch::ones({2})).requires_grad_(true);
      auto y = (x * 3 + x).sum();
      y.backward(at::functionalization::impl::to_functional_tensor(torch::ones({})));
      text << at::functionalization::impl::isFunctionalTensor(x.grad()) << " "
           << at::functionalization::impl::from_functional_tensor(x.grad()).sum().template item<float>();
    });
    return text.str() + error.type + error.message.substr(0, error.message.find('\n'));
  };
  EXPECT_EQ(scenario(), on<StockEngine>(scenario));
}

TYPED_TEST(OtherTensors, InPlaceOnAViewRewritesTheGraph) {
  auto x = torch::ones({4}, torch::requires_grad());
  auto y = x * 2;
  auto view = y.slice(0, 0, 2);
  view.mul_(5);  // CopySlices
  add_tensor_hook(view, [](const at::Tensor& grad) { return grad * 10; });
  y.sum().backward();
  EXPECT_TRUE(torch::equal(x.grad(), torch::tensor({10.f, 10.f, 2.f, 2.f})));
}

TYPED_TEST(OtherTensors, MetaLeavesNeverMeetCpuGradients) {
  const auto scenario = [] {
    auto x = torch::ones({2}, torch::TensorOptions().device(torch::kMeta).requires_grad(true));
    return message_of([&] { run({.roots = {accumulator(x)}, .grads = {torch::ones({2})}}); }).message;
  };
  EXPECT_EQ(scenario(), "invalid gradient at index 0 - expected device meta but got cpu");
}

}  // namespace
}  // namespace overdrive::test
