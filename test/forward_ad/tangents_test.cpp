#include "forward_ad/levels/tangents.h"

#include "test/forward_ad/forward_ad_fixture.h"

#include <ATen/functorch/TensorWrapper.h>

namespace overdrive::forward_ad {
namespace {

using at::Tensor;
using testing::ElementsAre;

using Captured = ForwardAdTest;

bool is_plain(const Tensor& tensor) { return at::functorch::maybeGetTensorWrapper(tensor) == nullptr; }

// As a packer does: each part leaves as bytes and comes back as another tensor.
void through_storage(CapturedTangents& captured) {
  for (Tensor& part : captured.parts()) {
    ASSERT_TRUE(is_plain(part));
    part = part.clone();
  }
}

TEST_F(Captured, PlainTensorIsItsOnePart) {
  Tensor x = random({3});
  CapturedTangents captured = CapturedTangents::capture(x);
  ASSERT_EQ(captured.parts().size(), 1u);
  EXPECT_TRUE(captured.parts()[0].is_same(x));
  EXPECT_TRUE(captured.restore().is_same(x));
  EXPECT_TRUE(captured.levels().empty());
  EXPECT_FALSE(CapturedTangents::capture(Tensor()).restore().defined());
}

TEST_F(Captured, KeepsTheTangentsOfAllLevels) {
  // x = a + b e1 + (c + d e1) e2: four plain tensors
  Tensor a = random({3}), b = random({3}), c = random({3}), d = random({3});
  DualLevel outer, inner;
  Tensor x = make_dual(make_dual(a, b, outer), make_dual(c, d, outer), inner);
  CapturedTangents captured = CapturedTangents::capture(x);
  EXPECT_THAT(captured.levels(), ElementsAre(outer.idx(), inner.idx()));
  ASSERT_EQ(captured.parts().size(), 4u);
  EXPECT_TRUE(captured.parts()[0].is_same(a));
  x.reset();
  through_storage(captured);
  DualParts at_inner = unpack_dual(captured.restore(), inner);
  EXPECT_TRUE(close(unpack_dual(at_inner.primal, outer).primal, a));
  EXPECT_TRUE(close(unpack_dual(at_inner.primal, outer).tangent, b));
  EXPECT_TRUE(close(unpack_dual(at_inner.tangent, outer).primal, c));
  EXPECT_TRUE(close(unpack_dual(at_inner.tangent, outer).tangent, d));
}

TEST_F(Captured, KeepsWhatDependsOnOneLevelOfTwo) {
  Tensor x = random({3}), v = random({3});
  DualLevel outer, inner;
  Tensor result = make_dual(x, v, outer) * 2;  // passes through the inner layer
  CapturedTangents captured = CapturedTangents::capture(result);
  EXPECT_THAT(captured.levels(), ElementsAre(outer.idx()));
  through_storage(captured);
  EXPECT_TRUE(close(unpack_dual(captured.restore(), outer).tangent, unpack_dual(result, outer).tangent));
  EXPECT_FALSE(unpack_dual(captured.restore(), inner).tangent.defined());
}

TEST_F(Captured, LeavesOutALevelThatWasClosed) {
  Tensor x = random({3}), v = random({3});
  DualLevel outer;
  CapturedTangents captured;
  {
    DualLevel inner;
    captured = CapturedTangents::capture(make_dual(make_dual(x, v, outer), x, inner));
  }
  through_storage(captured);
  DualParts parts = unpack_dual(captured.restore(), outer);
  EXPECT_TRUE(close(parts.primal, x));
  EXPECT_TRUE(close(parts.tangent, v));
}

// Saves what an operator keeps for its backward as bytes, and gives it back with its tangents.
TEST_F(Captured, ServesSavedTensorsOfForwardOverReverse) {
  Tensor x = random({4}), v = random({4});
  int packed = 0;
  auto product = [&](const Tensor& t) {
    Tensor kept = t * t;
    auto captured = std::make_shared<CapturedTangents>(CapturedTangents::capture(kept));
    through_storage(*captured);
    packed += static_cast<int>(captured->parts().size());
    kept.reset();
    return (captured->restore() * t).sum();  // its gradient with regard to t is what was kept
  };
  Tensor want = 2 * x * v;
  EXPECT_TRUE(
      close(jvp([&](const Tensor& t) { return vjp(product, t).pullback(number(1)); }, x, v).tangent, want));
  EXPECT_EQ(packed, 2) << "a value and a tangent, below the reverse layer";
}

}  // namespace
}  // namespace overdrive::forward_ad
