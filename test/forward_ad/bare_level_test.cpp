// The outermost level of a driver, which has no layer where it can do without.
#include "forward_ad/levels/tangents.h"

#include "test/forward_ad/forward_ad_fixture.h"

#include <future>
#include <thread>

namespace overdrive::forward_ad {
namespace {

using at::Tensor;
using testing::HasSubstr;
namespace stock = torch::autograd::forward_ad;

using Bare = ForwardAdTest;

bool has_layer(const Tensor& tensor) { return tensor.key_set().has(c10::DispatchKey::FuncTorchGradWrapper); }

bool has_tangent(const Tensor& tensor) { return tensor._fw_grad(0).defined(); }

// Runs a call on another thread, and what it throws comes back.
void elsewhere(const std::function<void()>& call) { std::async(std::launch::async, call).get(); }

Tensor derivative(const std::function<Tensor(const Tensor&)>& f, const Tensor& x) {
  return jvp(f, x, at::ones_like(x)).tangent;
}

// What the function of a driver is called with.
bool runs_bare() {
  bool bare = false;
  derivative([&](const Tensor& t) { return bare = !has_layer(t), t * 1; }, at::ones({}, at::kDouble));
  return bare;
}

TEST_F(Bare, IsTheOutermostLevelOfADriver) {
  EXPECT_TRUE(runs_bare());
  bool inside = true;
  derivative([&](const Tensor& t) { return inside = runs_bare(), t * 1; }, number(1));
  EXPECT_FALSE(inside);
  DualLevel level;
  EXPECT_FALSE(runs_bare());
}

TEST_F(Bare, GivesWayToTheProgramsOwnLevel) {
  uint64_t programs = stock::enter_dual_level();
  EXPECT_FALSE(runs_bare());
  Tensor x = random({3}), v = random({3}), w = random({3});
  Tensor theirs = at::_make_dual(x, v, static_cast<int64_t>(programs));
  Tensor tangent = jvp([](const Tensor& t) { return t.pow(2); }, theirs, w).tangent;
  EXPECT_TRUE(close(std::get<1>(at::_unpack_dual(tangent, 0)), 2 * v * w));
  {
    c10::NoGradGuard no_grad;  // reverse mode then needs no graph around it, but the tangents
    Tensor gradient = vjp([](const Tensor& t) { return t.pow(3).sum(); }, theirs).pullback(number(1));
    EXPECT_TRUE(close(std::get<1>(at::_unpack_dual(gradient, 0)), 6 * x * v));
  }
  stock::exit_dual_level(programs);
}

TEST_F(Bare, RefusesTheProgramMeanwhile) {
  derivative(
      [](const Tensor& t) {
        EXPECT_THAT(error_of([] { stock::enter_dual_level(); }),
                    HasSubstr("Nested forward mode AD is not supported"));
        return t * 1;
      },
      number(1));
}

TEST_F(Bare, TellsWhenTheProgramLeavesLevelZero) {
  auto leaves = [](const Tensor& t) { return stock::exit_dual_level(0), t * 1; };
  EXPECT_THAT(error_of([&] { derivative(leaves, number(1)); }), HasSubstr("was exited by somebody else"));
  EXPECT_TRUE(nothing_is_open());
}

TEST_F(Bare, LeavesNoTraceOnItsResults) {
  Tensor x = random({3}), v = random({3}), escaped, captured = random({3});
  auto f = [&](const Tensor& t) {
    escaped = t.exp();
    captured.mul_(t);
    return with_aux(escaped * captured, {t.sin()});
  };
  Tensor before = captured.clone();
  auto [value, tangent, aux] = jvp(f, x, v);
  for (const Tensor& t : {value, tangent, aux[0], escaped, captured, x, v}) {
    EXPECT_FALSE(has_tangent(t));
    EXPECT_FALSE(t.requires_grad());
    EXPECT_FALSE(has_layer(t));
  }
  EXPECT_TRUE(close(tangent, before * x.exp() * (1 + x) * v));
  EXPECT_TRUE(runs_bare());
}

// A layer of another thread keeps level 0 open past the end of the bare level.
TEST_F(Bare, LeavesNoTraceWhileAnotherThreadIsOnALevel) {
  Tensor x = random({3}), v = random({3}), escaped;
  std::promise<void> opened, closed;
  std::thread other;
  auto f = [&](const Tensor& t) {
    other = std::thread([&] {
      EXPECT_FALSE(runs_bare());
      DualLevel level;
      Tensor dual = make_dual(v, x, level);
      opened.set_value();
      closed.get_future().wait();
      EXPECT_TRUE(close(unpack_dual(dual.exp(), level).tangent, v.exp() * x));
    });
    opened.get_future().wait();
    return escaped = t.exp();
  };
  auto [value, tangent] = jvp(f, x, v);
  EXPECT_FALSE(has_tangent(value));
  EXPECT_TRUE(close(tangent, x.exp() * v));
  // What escaped still has its tangent, but nobody takes it for a direction of theirs.
  EXPECT_FALSE(runs_bare());
  auto with_escaped = [&](const Tensor& t) { return t * escaped; };
  EXPECT_TRUE(close(jvp(with_escaped, x, v).tangent, x.exp() * v));
  EXPECT_TRUE(
      close(derivative([&](const Tensor& t) { return derivative(with_escaped, t); }, x), at::zeros_like(x)));
  EXPECT_TRUE(CapturedTangents::capture(escaped).levels().empty());
  closed.set_value();
  other.join();
  EXPECT_FALSE(has_tangent(escaped));
  EXPECT_TRUE(runs_bare());
}

TEST_F(Bare, AnotherThreadsOperatorsCarryTheTangentButDoNotTakeItForTheirs) {
  Tensor x = random({3}), v = random({3});
  auto f = [&](const Tensor& t) {
    Tensor made_there;
    elsewhere([&] {
      made_there = t * t;
      EXPECT_TRUE(close(derivative([&](const Tensor& s) { return s * x; }, x), x));
      DualLevel own;
      EXPECT_THAT(error_of([&] { unpack_dual(t, own); }), HasSubstr("that another thread runs"));
      EXPECT_THAT(error_of([&] { make_dual(t, x, own); }), HasSubstr("that another thread runs"));
    });
    return made_there;
  };
  EXPECT_TRUE(close(jvp(f, x, v).tangent, 2 * x * v));
}

TEST_F(Bare, AThreadOfAPoolIsInside) {
  Tensor x = random({3}), v = random({3});
  auto f = [&](const Tensor& t) {
    Tensor made_there;
    at::ThreadLocalState callers;
    elsewhere([&] {
      at::ThreadLocalStateGuard guard(callers);
      made_there = derivative([&](const Tensor& s) { return s * s * t; }, x);
      DualLevel inside;
      made_there = made_there + unpack_dual(make_dual(t, x, inside) * t, inside).tangent;
    });
    return made_there;
  };
  EXPECT_TRUE(close(jvp(f, x, v).tangent, 3 * x * v));
}

TEST_F(Bare, AThreadOfAnotherLevelsPoolIsNotInside) {
  Tensor x = random({3}), v = random({3});
  auto f = [&](const Tensor& t) {
    elsewhere([&] {
      DualLevel own;  // beside the bare level, not inside
      at::ThreadLocalState callers;
      elsewhere([&] {
        at::ThreadLocalStateGuard guard(callers);
        EXPECT_TRUE(close(unpack_dual(make_dual(x, v, own) * x, own).tangent, x * v));
        EXPECT_THAT(error_of([&] { make_dual(t, x, own); }), HasSubstr("that another thread runs"));
      });
    });
    return t * t;
  };
  EXPECT_TRUE(close(jvp(f, x, v).tangent, 2 * x * v));
}

TEST_F(Bare, AThreadEntersALevelOpenedInside) {
  Tensor x = random({3}), v = random({3}), w = random({3});
  auto f = [&](const Tensor& t) {
    DualLevel inner;
    Tensor dual = make_dual(t, w, inner), tangent;
    elsewhere([&] {
      LevelScope here(inner);
      tangent = unpack_dual(dual * dual, inner).tangent;
    });
    return tangent;
  };
  EXPECT_TRUE(close(jvp(f, x, v).tangent, 2 * v * w));
}

TEST_F(Bare, ClosesWhatTheFunctionLeftOpen) {
  std::unique_ptr<DualLevel> forgotten;
  auto f = [&](const Tensor& t) -> Tensor {
    forgotten = std::make_unique<DualLevel>();
    TORCH_CHECK(false, "thrown");
    return t;
  };
  EXPECT_THAT(error_of([&] { derivative(f, number(1)); }), HasSubstr("thrown"));
  EXPECT_TRUE(nothing_is_open());
}

TEST_F(Bare, IsDifferentiatedByReverseModeAroundIt) {
  Tensor x = random({3, 3}).set_requires_grad(true), v = random({3, 3}).set_requires_grad(true);
  Tensor w = random({3, 3}).set_requires_grad(true);
  auto gradients = [&] {
    auto [value, tangent] = jvp([&](const Tensor& t) { return t.mm(w).tanh(); }, x, v);
    return torch::autograd::grad({(tangent.square() + value).sum()}, {x, v, w});
  };
  auto bare = gradients();
  uint64_t programs = stock::enter_dual_level();  // in the way: the driver takes a layer
  auto layered = gradients();
  stock::exit_dual_level(programs);
  for (size_t i = 0; i < bare.size(); ++i) EXPECT_TRUE(close(bare[i], layered[i])) << i;
}

TEST_F(Bare, SavesItsTangents) {
  Tensor x = random({3}), v = random({3});
  auto through_storage = [&](const Tensor& t) {
    CapturedTangents captured = CapturedTangents::capture(t * t);
    EXPECT_EQ(captured.levels().size(), 1u);
    EXPECT_EQ(captured.parts().size(), 2u);
    for (Tensor& part : captured.parts()) {
      EXPECT_FALSE(has_tangent(part));
      part = part.clone();
    }
    return captured.restore() * t;
  };
  EXPECT_TRUE(close(jvp(through_storage, x, v).tangent, 3 * x * x * v));
}

TEST_F(Bare, IsLeftOutForInferenceTensors) {
  Tensor x, v;
  {
    c10::InferenceMode guard;
    EXPECT_TRUE(runs_bare()) << "a driver leaves inference mode";
    EXPECT_THAT(error_of([] { DualLevel level; }), HasSubstr("cannot be opened in inference mode"));
    x = random({3}), v = random({3});
  }
  EXPECT_TRUE(close(jvp([](const Tensor& t) { return t * t; }, x, v).tangent, 2 * x * v));
}

}  // namespace
}  // namespace overdrive::forward_ad
