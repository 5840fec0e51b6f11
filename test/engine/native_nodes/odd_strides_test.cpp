// A contiguous tensor may have any stride where a size is one. Results of the host's nodes differ in whether
// they keep such strides of a gradient; native nodes differ in the same way.
#include "engine/engine.h"
#include "test/support/engines.h"
#include "test/support/pch.h"

namespace overdrive::test {
namespace {

using Function = at::Tensor (*)(const at::Tensor&);

#define OVERDRIVE_OF_T(...)                                                     \
  {                                                                             \
    #__VA_ARGS__, [](const at::Tensor& t) -> at::Tensor { return __VA_ARGS__; } \
  }
const std::vector<std::pair<const char*, Function>> kFunctions{
    OVERDRIVE_OF_T(t * 2),
    OVERDRIVE_OF_T(t* at::scalar_tensor(2)),
    OVERDRIVE_OF_T(t* t.detach()),
    OVERDRIVE_OF_T(t* at::ones({2, 1, 1, 1})),
    OVERDRIVE_OF_T(t / 2),
    OVERDRIVE_OF_T(t / at::scalar_tensor(2)),
    OVERDRIVE_OF_T(t / (t.detach() + 2)),
    OVERDRIVE_OF_T(-t),
    OVERDRIVE_OF_T(t.detach() - t),
    OVERDRIVE_OF_T(t.pow(2)),
    OVERDRIVE_OF_T(t.pow(3)),
    OVERDRIVE_OF_T(t.sqrt()),
    OVERDRIVE_OF_T(t.exp()),
    OVERDRIVE_OF_T(t.log()),
    OVERDRIVE_OF_T(t.relu()),
    OVERDRIVE_OF_T(t.tanh()),
    OVERDRIVE_OF_T(t.sigmoid()),
    OVERDRIVE_OF_T(at::silu(t)),
    OVERDRIVE_OF_T(at::gelu(t)),
    OVERDRIVE_OF_T(t.softmax(-1)),
    OVERDRIVE_OF_T(t.log_softmax(1)),
    OVERDRIVE_OF_T(at::where(t > 0, t, t.detach())),
    OVERDRIVE_OF_T(t.clone()),
    OVERDRIVE_OF_T(t.mean(0, true)),
    OVERDRIVE_OF_T(t.mean(2)),
    OVERDRIVE_OF_T(t.sum(2, true)),
    OVERDRIVE_OF_T(t.sum(at::IntArrayRef{0, 1})),
    OVERDRIVE_OF_T(t.expand({2, -1, -1, -1})),
    OVERDRIVE_OF_T(t.reshape({t.size(0) * t.size(1), t.size(2)})),
    OVERDRIVE_OF_T(t.transpose(0, 2)),
    OVERDRIVE_OF_T(t.permute({1, 2, 0})),
    OVERDRIVE_OF_T(t.squeeze()),
    OVERDRIVE_OF_T(t.squeeze(1)),
    OVERDRIVE_OF_T(t.unsqueeze(1)),
    OVERDRIVE_OF_T(t.slice(2, 0, 9, 2)),
    OVERDRIVE_OF_T(t.select(1, 0)),
    OVERDRIVE_OF_T(t.split(1, 1).at(0)),
    OVERDRIVE_OF_T(at::cat(t.chunk(2, 2), 0)),
    OVERDRIVE_OF_T(t.unbind(1).at(0)),
    OVERDRIVE_OF_T(at::stack({t, t * 2}, 1)),
    OVERDRIVE_OF_T(at::cat({t, t}, 0).narrow(0, 0, t.size(0))),
    OVERDRIVE_OF_T(t.select(0, 0).mm(at::ones({t.size(2), 2}))),
    OVERDRIVE_OF_T(t.select(0, 0).mm(at::ones({t.size(2), 1}))),
    OVERDRIVE_OF_T(at::ones({1, t.size(2)}).mm(t.select(0, 0).t())),
    OVERDRIVE_OF_T(at::addmm(t.select(0, 0), at::ones({t.size(1), 2}), at::ones({2, t.size(2)}))),
    OVERDRIVE_OF_T(at::linear(t, at::ones({1, t.size(2)}), at::ones({1}))),
    OVERDRIVE_OF_T(at::linear(at::ones({1, t.size(2)}), t.select(0, 0))),
    OVERDRIVE_OF_T(t.bmm(at::ones({t.size(0), t.size(2), 1}))),
    OVERDRIVE_OF_T(t.bmm(t.detach().transpose(1, 2))),
    OVERDRIVE_OF_T(at::layer_norm(t, {t.size(2)}, at::ones({t.size(2)}))),
    OVERDRIVE_OF_T(at::ones({2, 2, 2}) + t.sum()),
    OVERDRIVE_OF_T(at::mse_loss(t, t.detach() + 1, at::Reduction::None)),
    OVERDRIVE_OF_T(at::max_pool2d(t, {1, 1})),
    OVERDRIVE_OF_T(at::conv1d(t, at::ones({1, t.size(1), 1}))),
    OVERDRIVE_OF_T(at::embedding(t.select(0, 0), at::zeros({2}, at::kLong)))};
#undef OVERDRIVE_OF_T

// Where a size is one its stride is one more than the usual.
std::vector<int64_t> odd_strides(const at::Tensor& of) {
  std::vector<int64_t> strides = of.strides().vec();
  for (size_t i = 0; i < strides.size(); ++i) strides[i] += of.size(static_cast<int64_t>(i)) == 1;
  return strides;
}

// Of the gradient that arrives at a leaf of these sizes. `odd_leaf`: the leaf has odd strides too.
std::string gradient_strides(Function function, at::IntArrayRef sizes, bool shared, bool odd_leaf) {
  at::Tensor leaf = at::full(sizes, 0.5), result;
  if (odd_leaf) leaf = leaf.as_strided(sizes, odd_strides(leaf));
  leaf.requires_grad_();
  try {
    result = function(leaf + 0);
  } catch (const std::exception&) {
    return "not for these sizes";
  }
  const at::Tensor usual = at::full(result.sizes(), 0.25);
  const at::Tensor root = usual.as_strided(usual.sizes(), odd_strides(usual));
  result.backward(shared ? root : usual.clone().as_strided(usual.sizes(), odd_strides(usual)));
  return c10::str(leaf.grad().strides());
}

TEST(NativeNodesOddStrides, ResultsHaveTheHosts) {
  std::string wrong;
  for (const auto& [name, function] : kFunctions) {
    for (int variant = 0; variant < 27 * 2; ++variant) {
      const int shape = variant / 2;
      const bool shared = variant % 2 == 1, odd_leaf = !shared;
      const std::vector<int64_t> sizes{shape / 9, shape / 3 % 3, shape % 3};
      const auto strides = [&] { return gradient_strides(function, sizes, shared, odd_leaf); };
      const std::string ours = on<Overdrive>(strides), stocks = on<StockEngine>(strides);
      if (ours == stocks) continue;
      wrong += c10::str(name, " of ", at::IntArrayRef(sizes), shared ? " shared" : "", odd_leaf ? " odd" : "",
                        ": ", ours, ", stock ", stocks, "\n");
    }
  }
  EXPECT_EQ(wrong, "");
}

}  // namespace
}  // namespace overdrive::test
