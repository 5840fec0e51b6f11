// Operators for which LibTorch gives a wrong derivative without a word, where the table of operators
// cannot look: in other types, vectorised, and at single points.
#include "forward_ad/rules/repair.h"
#include "test/forward_ad/forward_ad_fixture.h"

#include <torch/version.h>

#include <limits>

namespace overdrive::forward_ad {
namespace {

using at::Tensor;

using WrongFormulas = ForwardAdTest;
using Function = std::function<Tensor(const Tensor&)>;

// LibTorch's formulas have the right first derivative only.
TEST_F(WrongFormulas, NormsInHalfPrecisionAreRightToSecondOrder) {
  const Function norms[] = {
      [](const Tensor& t) { return at::layer_norm(t, {3}, t.sum(0), t[0]); },
      [](const Tensor& t) {
        return at::layer_norm(t, {4, 3});
      },
      [](const Tensor& t) { return at::batch_norm(t, t[0], t[1], {}, {}, true, 0.1, 1e-2, false); },
      [](const Tensor& t) {
        Tensor mean = t[2].detach() * 0, variance = mean + 1;
        return at::batch_norm(t, t[0], t[1], mean, variance, false, 0.1, 1e-2, false);
      },
  };
  for (at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (size_t i = 0; i < std::size(norms); ++i) {
      SCOPED_TRACE(std::string(c10::toString(type)) + ", norm " + std::to_string(i));
      Tensor x = random({4, 3}).to(type), v = random({4, 3}).to(type);
      Tensor exact = x.to(at::kDouble), direction = v.to(at::kDouble);
      auto twice = [&](const Tensor& at, const Tensor& along) {
        auto once = [&](const Tensor& t) { return jvp(norms[i], t, along).tangent; };
        return jvp(once, at, along).tangent;
      };
      auto number = [&](const Tensor& t) { return norms[i](t).sin().sum(); };
      auto agrees = [&](const Tensor& got, const Tensor& want) {
        EXPECT_EQ(got.scalar_type(), type);
        return close(got.to(at::kDouble), want, 0.05);
      };
      EXPECT_TRUE(agrees(jvp(norms[i], x, v).tangent, jvp(norms[i], exact, direction).tangent));
      EXPECT_TRUE(agrees(twice(x, v), twice(exact, direction)));
      EXPECT_TRUE(agrees(hvp(number, x, v).product, hvp(number, exact, direction).product));
    }
  }
}

// LibTorch's vmap of the backward operator takes the distances of the first row for all.
TEST_F(WrongFormulas, VectorisedJacobiansOfDistancesAreThoseOfALoop) {
  Tensor x = random({4, 3}), points = random({2, 3});
  for (double p : {0.0, 1.0, 1.5, 2.0, 3.0, std::numeric_limits<double>::infinity()}) {
    const Function distances[] = {[&](const Tensor& t) { return at::cdist(t, points, p); },
                                  [&](const Tensor& t) { return at::cdist(points, t, p); },
                                  [&](const Tensor& t) { return at::cdist(t, t, p); },
                                  [&](const Tensor& t) { return at::pdist(t, p); }};
    for (size_t i = 0; i < std::size(distances); ++i) {
      SCOPED_TRACE("p = " + std::to_string(p) + ", function " + std::to_string(i));
      Tensor want = jacrev(distances[i], x, {.vectorize = false});
      EXPECT_TRUE(close(jacrev(distances[i], x), want));
      EXPECT_TRUE(close(jacrev(distances[i], x, {.chunk_size = 3}), want));
      EXPECT_TRUE(close(jacfwd(distances[i], x), want));
    }
  }
}

// Of complex numbers: LibTorch refuses the one in reverse mode, and is wrong in forward mode.
TEST_F(WrongFormulas, ComplexNumbersHaveTheirDerivatives) {
  Tensor z = at::randn({3}, at::kComplexDouble), v = at::randn({3}, at::kComplexDouble), x = random({3}).abs();
  auto silu = [](const Tensor& t) { return at::silu(t); };
  Tensor gate = at::sigmoid(z), slope = v * gate * (1 + z * (1 - gate));
  EXPECT_TRUE(at::allclose(jvp(silu, z, v).tangent, slope));
  auto power = [](const Tensor& t) { return t.pow(c10::complex<double>(2, 0)); };
  EXPECT_TRUE(jvp(power, x, x).value.is_complex()) << "as without a level";
  DualLevel layered;
  EXPECT_TRUE(at::allclose(jvp(silu, z, v).tangent, slope));
}

// Rows of an embedding bag are looked up without a derivative where the table has none.
TEST_F(WrongFormulas, WeightsOfEmbeddingBagsCountBesideAConstantTable) {
  Tensor table = random({4, 2}), rows = at::arange(3), bags = at::zeros({1}, at::kLong), x = random({3});
  auto f = [&](const Tensor& t) {
    return std::get<0>(at::embedding_bag(table, rows, bags, false, 0, false, t));
  };
  EXPECT_TRUE(close(jvp(f, x, x).tangent, f(x)));
  DualLevel layered;
  EXPECT_TRUE(close(jvp(f, x, x).tangent, f(x)));
}

TEST_F(WrongFormulas, TheDeterminantOfASingularMatrixHasItsDerivatives) {
  Tensor x = at::ones({2, 2}, at::kDouble), v = random({2, 2});
  auto det = [](const Tensor& t) { return at::linalg_det(t); };
  Tensor slope = v[0][0] + v[1][1] - v[0][1] - v[1][0];
  EXPECT_TRUE(close(jvp(det, x, v).tangent, slope));
  EXPECT_TRUE(close(hvp(det, x, v).product,
                    at::stack({at::stack({v[1][1], -v[1][0]}), at::stack({-v[0][1], v[0][0]})})));
  EXPECT_TRUE(close(jvp(det, at::ones({3, 3}, at::kDouble), random({3, 3})).tangent, number(0))) << "of rank 1";
}

// Later versions have mended some.
TEST_F(WrongFormulas, EachRepairMendsAFaultOfTheLibTorchInUse) {
  if (TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR != 13)
    GTEST_SKIP() << "the faults are those of LibTorch 2.13";
  const DualLevel registers_them;
  const std::vector<bool> found = rules::faults_found(rules::repairs());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(found[i]) << rules::repairs()[i].fault;
}

TEST_F(WrongFormulas, ARepairIsDroppedWhereItsTrialFindsNoDifference) {
  const DualLevel registers_them;
  const rules::Repair mended{
      "a fault that LibTorch has not", nullptr,
      [] { return rules::second_order([](const Tensor& x) { return x.exp(); }, rules::row(1, {3})); }};
  const rules::Repair refused{"a formula that LibTorch lacks", nullptr,
                              []() -> std::vector<Tensor> { TORCH_CHECK(false, "not implemented"); }};
  EXPECT_EQ(rules::faults_found({mended, refused}), (std::vector<bool>{false, true}));
}

// LibTorch gives them a tangent of zero.
TEST_F(WrongFormulas, FunctionsWithoutADerivativeAreNotTakenForConstants) {
  Tensor x = random({3}).abs();
  const Function functions[] = {[](const Tensor& t) { return at::special_bessel_j0(t); },
                                [](const Tensor& t) { return at::special_modified_bessel_k1(t); },
                                [](const Tensor& t) { return at::special_airy_ai(t); }};
  for (const Function& f : functions) {
    for (bool layered : {false, true}) {
      std::optional<DualLevel> level;
      if (layered) level.emplace();
      EXPECT_THAT(error_of([&] { jvp(f, x, x); }), testing::HasSubstr("has no derivative in LibTorch"));
      EXPECT_TRUE(close(jvp([&](const Tensor& t) { return f(x) * t; }, x, x).tangent, f(x) * x));
    }
  }
}

}  // namespace
}  // namespace overdrive::forward_ad
