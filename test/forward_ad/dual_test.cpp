#include "test/forward_ad/forward_ad_fixture.h"

#include <ATen/functorch/TensorWrapper.h>

namespace overdrive::forward_ad {
namespace {

using at::Tensor;
using testing::HasSubstr;

using Dual = ForwardAdTest;

TEST_F(Dual, CarriesATangentThroughOperators) {
  at::Tensor x = random({3}), v = random({3});
  DualLevel level;
  auto [value, slope] = unpack_dual(make_dual(x, v, level).sin() * 2, level);
  EXPECT_TRUE(close(value, x.sin() * 2));
  EXPECT_TRUE(close(slope, x.cos() * v * 2));
}

TEST_F(Dual, GivesTheTangentItWasMadeOf) {
  at::Tensor x = random({3}), v = random({3});
  DualLevel level;
  auto [primal, tangent] = unpack_dual(make_dual(x, v, level), level);
  EXPECT_TRUE(primal.is_same(x));
  EXPECT_TRUE(tangent.is_same(v));
}

TEST_F(Dual, HasNoTangentForWhatDoesNotDependOnIt) {
  at::Tensor x = random({3});
  DualLevel level;
  EXPECT_FALSE(unpack_dual(x, level).tangent.defined());
  EXPECT_TRUE(unpack_dual(x, level).primal.is_same(x));
  EXPECT_FALSE(unpack_dual(at::ones({3}), level).tangent.defined());
}

TEST_F(Dual, ReadsAsItsPrimalWhenItsLevelIsClosed) {
  at::Tensor x = random({3}), dual, result;
  {
    DualLevel level;
    dual = make_dual(x, random({3}), level);
    result = dual * 2;
  }
  EXPECT_TRUE(close(dual + 1, x + 1));
  EXPECT_TRUE(close(result.exp(), (x * 2).exp()));
  DualLevel next;  // takes the same place on the layer stack
  EXPECT_FALSE(unpack_dual(dual * 3, next).tangent.defined());
  EXPECT_FALSE(unpack_dual(result, next).tangent.defined());
}

TEST_F(Dual, DropsItsTangentWithItsLevel) {
  bool destroyed = false;
  at::Tensor dual;
  double memory[2] = {1, 2};
  {
    DualLevel level;
    at::Tensor v = at::from_blob(
        memory, {2}, [&](void*) { destroyed = true; }, at::kDouble);
    dual = make_dual(random({2}), v, level);
    v.reset();
    EXPECT_FALSE(destroyed);
  }
  EXPECT_TRUE(destroyed) << "the release of the level clears every registered grad";
}

TEST_F(Dual, LeavesItsLevelWhenItDies) {
  DualLevel level;
  auto registered = [&] { return LevelRegistry::get_by_idx(level)->grad_count(); };
  {
    at::Tensor dual = make_dual(random({2}), random({2}), level);
    EXPECT_EQ(registered(), 1u);
  }
  EXPECT_EQ(registered(), 0u);
}

TEST_F(Dual, NestsAnyNumberOfLevels) {
  // d^4/dx^4 of x^5, by hand
  at::Tensor x = number(1.5), one = number(1);
  DualLevel a, b, c, d;
  at::Tensor y = make_dual(make_dual(make_dual(make_dual(x, one, a), one, b), one, c), one, d).pow(5);
  at::Tensor r = unpack_dual(y, d).tangent;
  r = unpack_dual(r, c).tangent;
  r = unpack_dual(r, b).tangent;
  r = unpack_dual(r, a).tangent;
  EXPECT_TRUE(close(r, x * 120));
}

TEST_F(Dual, UnpacksOuterLevelsInsideInnerOnes) {
  // x = 2 + e1 + e2; x^3 = 8 + 12 e1 + 12 e2 + 12 e1 e2, unpacked in either order
  at::Tensor x = number(2), one = number(1);
  DualLevel outer, inner;
  at::Tensor y = make_dual(make_dual(x, one, outer), one, inner).pow(3);
  DualParts at_outer = unpack_dual(y, outer);
  EXPECT_TRUE(close(unpack_dual(at_outer.primal, inner).primal, number(8)));
  EXPECT_TRUE(close(unpack_dual(at_outer.primal, inner).tangent, number(12)));
  EXPECT_TRUE(close(unpack_dual(at_outer.tangent, inner).primal, number(12)));
  EXPECT_TRUE(close(unpack_dual(at_outer.tangent, inner).tangent, number(12)));
}

TEST_F(Dual, MakesDualsOfAnOuterLevelInsideAnInnerOne) {
  at::Tensor x = number(3), v = number(2);
  DualLevel outer, inner;
  at::Tensor y = make_dual(x, v, outer) * make_dual(x, number(5), inner);
  EXPECT_TRUE(close(unpack_dual(unpack_dual(y, inner).tangent, outer).tangent, number(10)));
}

TEST_F(Dual, IsWrittenIntoByInPlaceOperators) {
  at::Tensor x = random({3}), v = random({3});
  at::Tensor x0 = x.clone(), v0 = v.clone();
  DualLevel level;
  at::Tensor dual = make_dual(x, v, level), factor = make_dual(x0, v0, level);
  dual.mul_(factor);
  EXPECT_TRUE(close(unpack_dual(dual, level).tangent, 2 * x0 * v0));
  EXPECT_TRUE(close(x, x0 * x0)) << "a dual shares the memory of its primal";
}

TEST_F(Dual, KeepsViewsAndTheirBaseTogether) {
  at::Tensor x = random({2, 3}), v = random({2, 3}), w = random({2});
  at::Tensor v0 = v.clone(), zero = at::zeros({2, 3}, at::kDouble);
  DualLevel outer, level;
  at::Tensor base = make_dual(make_dual(x, zero, outer), v, level);
  base.select(1, 0).mul_(make_dual(w, w, outer));  // a view, in place, with a dual of another level
  at::Tensor slope = unpack_dual(base, level).tangent;
  at::Tensor values = unpack_dual(slope, outer).primal, mixed = unpack_dual(slope, outer).tangent;
  EXPECT_TRUE(close(values.select(1, 0), v0.select(1, 0) * w));
  EXPECT_TRUE(close(values.select(1, 1), v0.select(1, 1)));
  EXPECT_TRUE(close(mixed.select(1, 0), v0.select(1, 0) * w));
  EXPECT_TRUE(close(mixed.select(1, 1), zero.select(1, 1)));
}

TEST_F(Dual, GivesABaseItsTangentThroughAView) {
  at::Tensor x = random({3}), v = random({3});
  DualLevel level;
  at::Tensor base = make_dual(at::zeros({2, 3}, at::kDouble), at::zeros({2, 3}, at::kDouble), level) * 1;
  base[1].copy_(make_dual(x, v, level));
  EXPECT_TRUE(close(unpack_dual(base, level).tangent[1], v));
  EXPECT_TRUE(close(unpack_dual(base, level).tangent[0], at::zeros({3}, at::kDouble)));
}

TEST_F(Dual, TakesATangentOfAnotherMemoryLayout) {
  at::Tensor x = random({3, 2}), v = random({2, 3}).t();
  DualLevel level;
  at::Tensor dual = make_dual(x, v, level);
  EXPECT_TRUE(close(unpack_dual(dual, level).tangent, v));
  EXPECT_EQ(unpack_dual(dual.view({6}), level).tangent.sizes(), at::IntArrayRef({6}));
}

// An expanded primal has one place for several elements, its tangent has several numbers.
TEST_F(Dual, TakesATangentWithMorePlacesThanItsPrimal) {
  Tensor row = random({5}), v = random({2, 3}), complex = at::complex(random({2, 3}), random({2, 3})).conj();
  auto f = [](const Tensor& x) { return x.t().exp() * x[0][0]; };
  auto g = [&](const Tensor& x) { return f(x).sum(); };
  for (const Tensor& x :
       {row.narrow(0, 0, 3).expand({2, 3}), row[0].expand({2, 3}), row.narrow(0, 0, 4).unfold(0, 3, 1),
        row.as_strided({2, 3}, {0, 2}), at::imag(complex)}) {
    Tensor dense = x.clone(at::MemoryFormat::Contiguous).resolve_neg();
    Tensor slope = jvp(f, dense, v).tangent, columns = jacfwd(f, dense), product = hvp(g, dense, v).product;
    for (bool layered : {false, true}) {
      SCOPED_TRACE("strides " + std::to_string(x.stride(0)) + ", layered " + std::to_string(layered));
      std::optional<DualLevel> level;
      if (layered) level.emplace();
      EXPECT_TRUE(close(jvp(f, x, v).tangent, slope));
      EXPECT_TRUE(close(jacfwd(f, x), columns));
      EXPECT_TRUE(close(jacfwd(f, x, {.vectorize = false}), columns));
      EXPECT_TRUE(close(hvp(g, x, v).product, product));
    }
    DualLevel outer, level;
    Tensor dual = make_dual(make_dual(x, v, outer), 2 * v, level);
    auto [primal, tangent] = unpack_dual(dual, level);
    EXPECT_TRUE(close(unpack_dual(primal, outer).primal, dense));
    EXPECT_TRUE(close(unpack_dual(primal, outer).tangent, v));
    EXPECT_TRUE(close(unpack_dual(tangent, outer).primal, 2 * v));
  }
}

TEST_F(Dual, OfAnExpandedPrimalIsPartOfTheGraphAround) {
  Tensor row = random({3}).set_requires_grad(true), v = random({2, 3});
  Tensor slope = jvp([](const Tensor& x) { return x.pow(3).sum(); }, row.expand({2, 3}), v).tangent;
  EXPECT_TRUE(close(torch::autograd::grad({slope}, {row})[0], (6 * row * v).sum(0)));
}

TEST_F(Dual, RefusesPairsThatDoNotFit) {
  at::Tensor x = random({3});
  DualLevel level;
  auto pair = [&](const at::Tensor& primal, const at::Tensor& tangent) {
    return error_of([&] { make_dual(primal, tangent, level); });
  };
  EXPECT_THAT(pair(x, random({4})), HasSubstr("the primal has shape [3], the tangent [4]"));
  EXPECT_THAT(pair(x, at::ones({3}, at::kFloat)), HasSubstr("the primal has dtype double, the tangent float"));
  EXPECT_THAT(pair(x, at::empty({3}, at::TensorOptions(at::kMeta).dtype(at::kDouble))),
              HasSubstr("the primal is on cpu, the tangent on meta"));
  EXPECT_THAT(pair(x, x.to_sparse()), HasSubstr("layout"));
  EXPECT_THAT(pair(at::ones({3}, at::kLong), at::ones({3}, at::kLong)),
              HasSubstr("only floating point and complex"));
  EXPECT_THAT(pair(x, at::Tensor()), HasSubstr("the tangent is an undefined tensor"));
  EXPECT_THAT(pair(at::Tensor(), x), HasSubstr("the primal is an undefined tensor"));
}

TEST_F(Dual, RefusesATangentOrPrimalThatHasOneAtTheSameLevel) {
  at::Tensor x = random({3});
  DualLevel level;
  at::Tensor dual = make_dual(x, x, level);
  EXPECT_THAT(error_of([&] { make_dual(x, dual, level); }),
              HasSubstr("the tangent carries a tangent at this level"));
  EXPECT_THAT(error_of([&] { make_dual(dual, x, level); }),
              HasSubstr("the primal carries a tangent at this level"));
}

TEST_F(Dual, RefusesADualOfAnInnerLevelAsPrimalOfAnOuterOne) {
  DualLevel outer, inner;
  at::Tensor dual = make_dual(random({3}), random({3}), inner);
  EXPECT_THAT(error_of([&] { make_dual(dual, random({3}), outer); }), HasSubstr("opened inside this level"));
}

TEST_F(Dual, RefusesALevelThatIsNotOpen) {
  uint64_t closed = 0;
  {
    DualLevel level;
    closed = level;
  }
  EXPECT_THAT(error_of([&] { make_dual(random({3}), random({3}), closed); }), HasSubstr("is not open"));
  EXPECT_THAT(error_of([&] { unpack_dual(random({3}), closed); }), HasSubstr("is not open"));
  uint64_t bare = LevelRegistry::get_next_idx();
  EXPECT_THAT(error_of([&] { unpack_dual(random({3}), bare); }), HasSubstr("opened in the registry alone"));
  LevelRegistry::release_idx(bare);
}

TEST_F(Dual, ClosesInOrderOrSaysWhatIsOpen) {
  auto outer = std::make_unique<DualLevel>();
  auto inner = std::make_unique<DualLevel>();
  EXPECT_THAT(error_of([&] { outer->close(); }), HasSubstr("reverse order of opening"));
  outer.reset();  // a destructor cannot refuse: it closes what is inside it first
  EXPECT_TRUE(nothing_is_open());
  EXPECT_THAT(error_of([&] { inner->close(); }), HasSubstr("is not open"));
}

TEST_F(Dual, NoticesALayerLeftInsideIt) {
  namespace ft = at::functorch;
  auto level = std::make_unique<DualLevel>();
  ft::initAndPushDynamicLayer(ft::TransformType::Grad, std::nullopt, std::nullopt, true);
  EXPECT_THAT(error_of([&] { level->close(); }), HasSubstr("is still on the layer stack"));
  level.reset();
  EXPECT_TRUE(nothing_is_open()) << "the destructor takes the layer along";
}

TEST_F(Dual, WorksWithComplexTensors) {
  at::Tensor x = at::randn({3}, at::kComplexDouble), v = at::randn({3}, at::kComplexDouble);
  DualLevel level;
  EXPECT_TRUE(at::allclose(unpack_dual(make_dual(x, v, level).pow(2), level).tangent, 2 * x * v));
}

TEST_F(Dual, WorksWhereForwardModeIsDisabledOutside) {
  c10::AutoFwGradMode disabled(false);
  {
    DualLevel level;
    EXPECT_TRUE(unpack_dual(make_dual(random({3}), random({3}), level) * 2, level).tangent.defined());
  }
  EXPECT_FALSE(c10::AutogradState::get_tls_state().get_fw_grad_mode()) << "the level puts the mode back";
}

}  // namespace
}  // namespace overdrive::forward_ad
