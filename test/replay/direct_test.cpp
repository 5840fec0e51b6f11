// Operators without the dispatcher: each is direct, and has eager's bits on values that no recording has seen.
#include "test/replay/replay_fixture.h"

#include <limits>

namespace overdrive::test {
namespace {

struct DirectRow {
  const char* op;
  std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> call;
  bool direct = true;
};

// LibTorch for 64-bit ARM computes some products by oneDNN.
#if defined(__aarch64__)
constexpr bool kOnlyBlas = false;
#else
constexpr bool kOnlyBlas = true;
#endif

using T = const at::Tensor&;

const std::vector<DirectRow>& direct_rows() {
  static const std::vector<DirectRow> rows{
      {"tanh", [](T a, T) { return a.tanh(); }},
      {"sigmoid", [](T a, T) { return a.sigmoid(); }},
      {"neg", [](T a, T) { return a.neg(); }},
      {"sqrt", [](T a, T) { return a.sqrt(); }},
      {"exp", [](T a, T) { return a.exp(); }},
      {"log", [](T a, T) { return a.log(); }},
      {"abs", [](T a, T) { return a.abs(); }},
      {"silu", [](T a, T) { return torch::silu(a); }},
      {"reciprocal", [](T a, T) { return a.reciprocal(); }},
      {"relu", [](T a, T) { return torch::relu(a); }},
      {"leaky_relu", [](T a, T) { return torch::leaky_relu(a, 0.3); }},
      {"pow.Tensor_Scalar", [](T a, T) { return a.pow(3); }},
      {"mul.Tensor", [](T a, T b) { return a * b; }},
      {"mul.Scalar", [](T a, T) { return a * 0.7; }},
      {"div.Tensor", [](T a, T b) { return a / b; }},
      {"mul.Tensor", [](T a, T b) { return a * b.neg() * a.neg(); }},
      {"mul.Tensor",
       [](T a, T b) {
         return torch::cat({a, a, b}).repeat({20, 1}) * 2. * a.repeat({60, 1});
       }},
      {"mse_loss", [](T a, T b) { return torch::mse_loss(a, b); }},
      {"mse_loss", [](T a, T b) { return torch::mse_loss(a, b, at::Reduction::Sum); }},
      {"mse_loss_backward",
       [](T a, T b) { return at::mse_loss_backward(b.sum(), a, b.contiguous(), at::Reduction::Mean); }},
      {"pow.Tensor_Scalar", [](T a, T) { return a.pow(1); }},
      {"maximum", [](T a, T b) { return torch::maximum(a, b); }},
      {"add.Tensor", [](T a, T b) { return a.add(b, 0.3); }},
      {"add.Scalar", [](T a, T) { return a + 0.3; }},
      {"sub.Tensor", [](T a, T b) { return a.sub(b.select(0, 0), 0.3); }},
      {"addcmul", [](T a, T b) { return torch::addcmul(a, b, a, 0.3); }},
      {"addcdiv", [](T a, T b) { return torch::addcdiv(a, b, a, 0.3); }},
      {"sum", [](T a, T) { return a.sum(); }},
      {"sum.dim_IntList", [](T a, T) { return a.sum({0}, true); }},
      {"mean.dim", [](T a, T) { return a.mean({1}); }},
      {"mm", [](T a, T b) { return a.mm(b.t()); }, kOnlyBlas},
      {"mm", [](T a, T b) { return a.t().mm(b); }},
      {"mm",
       [](T a, T b) {
         return a.select(1, 0).unsqueeze(0).expand({4, 5}).mm(b);
       }},
      {"mm",
       [](T a, T b) {
         return a.mm(b[0][0].expand({9, 1}));
       }},
      {"mm",
       [](T a, T b) {
         return b[0][0].expand({1, 5}).mm(a);
       }},
      {"addmm", [](T a, T b) { return torch::addmm(b.select(1, 0).contiguous(), a, b.t()); }, kOnlyBlas},
      {"addmm", [](T a, T b) { return torch::addmm(b.select(0, 0).contiguous(), a.t(), b); }},
      {"select_backward",
       [](T a, T) {
         return at::select_backward(a, {3, 5, 9}, 0, 1);
       }},
      {"select_backward",
       [](T a, T) {
         return at::select_backward(a.t(), {9, 2, 5}, 1, -1);
       }},
      {"slice_backward",
       [](T a, T) {
         return at::slice_backward(a, {8, 9}, 0, 2, 7, 1);
       }},
      {"slice_backward",
       [](T a, T) {
         return at::slice_backward(a, {5, 20}, 1, 1, 19, 2);
       }},
      {"cat",
       [](T a, T b) {
         return torch::cat({a, b, a}, 1);
       }},
      {"clone", [](T a, T) { return a.t().clone(); }},
      {"clone",
       [](T a, T b) {
         return torch::stack({a, b, a * 2}, 1).transpose(0, 1).clone(at::MemoryFormat::Contiguous);
       }},
      {"clone",
       [](T a, T b) {
         const at::Tensor deep = (a.unsqueeze(2) * b.select(0, 0).narrow(0, 0, 8)).view({5, 3, 3, 2, 4});
         return deep.permute({2, 0, 3, 1, 4}).clone(at::MemoryFormat::Contiguous);
       }},
      {"clone",
       [](T a, T) {
         return a.narrow(1, 2, 6).expand({3, 5, 6}).clone(at::MemoryFormat::Contiguous);
       }},
      {"copy_",
       [](T a, T b) {
         return torch::empty({4, 9, 5}).transpose(1, 2).copy_(a.expand({4, 5, 9})) + b;
       }},
      {"copy_", [](T a, T b) { return torch::empty_like(a).copy_(b); }},
      {"zero_", [](T a, T) { return torch::empty_like(a).zero_(); }},
      {"fill_.Scalar", [](T a, T) { return torch::empty_like(a).fill_(0.3); }},
      {"ones_like", [](T a, T) { return torch::ones_like(a); }},
      {"mul_.Tensor", [](T a, T b) { return a.clone().mul_(b); }},
      {"add_.Tensor", [](T a, T b) { return a.clone().add_(b); }},
      {"add_.Tensor", [](T a, T) { return a.clone().add_(a.neg()); }},
      {"add_.Tensor", [](T a, T b) { return a.clone().add_(b, -0.3); }}};
  return rows;
}

// Ordinary values at first, and later those that kernels may treat in ways of their own.
at::Tensor values(int i, double offset) {
  at::Tensor result = batch_of(i, {5, 9}, {1})[0] + offset;
  if (i < 6) return result;
  using Limits = std::numeric_limits<float>;
  const std::array<float, 9> odd{0.f,
                                 -0.f,
                                 Limits::infinity(),
                                 -Limits::infinity(),
                                 Limits::quiet_NaN(),
                                 Limits::denorm_min(),
                                 Limits::max(),
                                 Limits::lowest(),
                                 Limits::min()};
  for (int k = 0; k < 9; ++k) result[(i + k) % 5][(i * k) % 9] = odd[k];
  return result;
}

TEST(CaptureDirect, OperatorsHaveEagersBits) {
  for (const DirectRow& row : direct_rows()) {
    auto step = capture([&](at::Tensor a, at::Tensor b) { return row.call(a, b); });
    for (int i = 0; i < 16; ++i) {
      const at::Tensor a = values(i, 0), b = values(i + 3, 0.5);
      EXPECT_TRUE(same_bits(step(a, b), row.call(a, b))) << row.op << " " << i;
    }
    EXPECT_GT(replays(step.stats()), 10u) << row.op << step.explain();
    const auto direct = testing::HasSubstr(c10::str("direct aten::", row.op, "("));
    EXPECT_THAT(step.explain(), testing::Conditional(row.direct, direct, testing::Not(direct))) << row.op;
  }
}

// An operator of two results: the places are part of what it returns.
TEST(CaptureDirect, MaxPoolHasEagersElementsAndPlaces) {
  struct Pool {
    std::vector<int64_t> window, step, pad;
    bool ceil;
  };
  const std::vector<Pool> pools{{{2}, {}, {0}, false},
                                {{3}, {2}, {1}, true},
                                {{3, 2}, {1, 3}, {1, 0}, false},
                                {{2, 4}, {2, 1}, {0, 2}, true}};
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    for (const Pool& pool : pools) {
      const auto pooled = [&](const at::Tensor& x) {
        return torch::max_pool2d_with_indices(x, pool.window, pool.step, pool.pad, 1, pool.ceil);
      };
      auto step = capture([&](at::Tensor x) { return pooled(x); });
      for (int i = 0; i < 16; ++i) {
        // Rows of more windows than are looked at together, and many NaNs, infinities and ties.
        at::Tensor x = batch_of(i, {2, 3, 9, 141}, {1})[0].mul(3).round().to(type);
        if (i >= 6) x = x.masked_fill(x == 2, NAN).masked_fill(x < 0, -INFINITY);
        const auto [elements, places] = step(x);
        const auto [expected, expected_places] = pooled(x);
        EXPECT_TRUE(same_bits(elements, expected) && same_bits(places, expected_places)) << i;
      }
      EXPECT_THAT(step.explain(), testing::HasSubstr("direct aten::max_pool2d_with_indices("));
    }
  }
}

}  // namespace
}  // namespace overdrive::test
