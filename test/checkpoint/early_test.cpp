// The early form: when each of its nodes runs, and what it refuses. On both engines.
#include "checkpoint/chain/sequential.h"
#include "forward_ad/forward_ad.h"
#include "test/checkpoint/checkpoint_fixture.h"
#include "test/support/engines.h"

namespace overdrive::checkpoint {
namespace {

template <typename E>
class Early : public CheckpointTest {
 protected:
  void SetUp() override {
    CheckpointTest::SetUp();
    E::install();
  }

  // A function that notes when it runs, and a tensor hook that notes when the gradient comes by.
  Function noting_block() {
    return [this](const Tensors& t) {
      timeline.add(is_recomputing() ? "recompute" : "forward");
      return Tensors{this->block(t[0])};
    };
  }
  Tensor note_gradient(const Tensor& tensor) {
    tensor.register_hook([this](const Tensor&) { timeline.add("gradient"); });
    return tensor;
  }

  Timeline timeline;
};
TYPED_TEST_SUITE(Early, test::Engines, test::EngineNames);

TYPED_TEST(Early, RecomputesBeforeTheGradientPassesCheckpoint) {
  // {x} --Checkpoint--> {y} --WaitInBackward--> --ReleaseInBackward--> {y}
  //                             `-- Recompute --'
  Checkpointing region(this->noting_block(), {this->x});
  Tensors outputs = region.checkpoint();
  this->note_gradient(outputs[0]);
  region.recompute(outputs)[0].sum().backward();
  EXPECT_THAT(this->timeline.events(), ElementsAre("forward", "recompute", "gradient"));
}

// A pipeline puts a wait between the two: it may delay Checkpoint, and Recompute does not wait for it.
TYPED_TEST(Early, DelaysOnlyCheckpointByWhatIsBetweenTheHalves) {
  Checkpointing region(this->noting_block(), {this->x});
  Tensors outputs = region.checkpoint();
  outputs[0] = this->note_gradient(outputs[0] * 1);  // the wait
  outputs = region.recompute(outputs);
  outputs[0] = outputs[0] * 1;
  outputs[0].register_hook([this](const Tensor&) { this->timeline.add("sent"); });
  outputs[0].sum().backward();
  EXPECT_THAT(this->timeline.events(), ElementsAre("forward", "sent", "recompute", "gradient"));
}

TYPED_TEST(Early, RecomputesInCheckpointWhenNobodyTiedItElsewhere) {
  Checkpointing region(this->noting_block(), {this->x});
  this->note_gradient(region.checkpoint()[0]).sum().backward();
  EXPECT_THAT(this->timeline.events(), ElementsAre("forward", "gradient", "recompute"));
}

TYPED_TEST(Early, RecomputesTheLastRegionFirst) {
  Tensor y = this->x;
  for (int i = 0; i < 3; ++i) {
    y = checkpoint(
        kEarlyForm,
        [this, i](const Tensor& t) {
          this->timeline.add(i, is_recomputing() ? " again" : "");
          return this->block(t);
        },
        y);
  }
  y.sum().backward();
  EXPECT_THAT(this->timeline.events(), ElementsAre("0", "1", "2", "2 again", "1 again", "0 again"));
}

TYPED_TEST(Early, RefusesGradAndInputs) {
  const auto forward = [this] {
    return checkpoint(
               kEarlyForm, [this](const Tensor& t) { return this->block(t); }, this->x)
        .sum();
  };
  const auto text = HasSubstr("Checkpointing is not compatible with .grad() or when an `inputs` parameter");
  EXPECT_THAT(error_of([&] { torch::autograd::grad({forward()}, {this->x}); }), text);
  EXPECT_THAT(error_of([&] { torch::autograd::backward({forward()}, {}, false, false, {this->x}); }),
              testing::AllOf(text, HasSubstr("kOnDemand")));
  EXPECT_FALSE(this->x.grad().defined());
  EXPECT_FALSE(this->weight.grad().defined());
}

TYPED_TEST(Early, RefusesAGradientOfAGradient) {
  const Tensor y = checkpoint(
                       kEarlyForm, [this](const Tensor& t) { return this->block(t); }, this->x)
                       .sum();
  EXPECT_THAT(error_of([&] { y.backward({}, true, true); }), HasSubstr("no gradient of a gradient"));
}

TYPED_TEST(Early, RefusesASecondBackwardUnlessTheGraphWasKept) {
  const Tensor y = checkpoint(
                       kEarlyForm, [this](const Tensor& t) { return this->block(t); }, this->x)
                       .sum();
  y.backward({}, /*retain_graph=*/true);
  const Tensor once = this->x.grad().clone();
  y.backward();
  EXPECT_TRUE(same_bits(this->x.grad(), once * 2));
  EXPECT_THAT(error_of([&] { y.backward(); }), HasSubstr("second time"));
}

TYPED_TEST(Early, RunsPlainlyForATangent) {
  const auto level = torch::autograd::forward_ad::enter_dual_level();
  const Tensor dual = at::_make_dual(this->x.detach(), at::ones_like(this->x), 0);
  const Tensor y = checkpoint(
      kEarlyForm, [](const Tensor& t) { return t * 2; }, dual);
  const Tensor tangent = std::get<1>(at::_unpack_dual(y, 0)).clone();
  torch::autograd::forward_ad::exit_dual_level(level);
  EXPECT_TRUE(same_bits(tangent, at::full({4, 8}, 2.0f)));
}

TYPED_TEST(Early, RunsPlainlyInsideFunctorchLayers) {
  const forward_ad::DualLevel level;
  Tensor y;
  const Function f = [&](const Tensors& t) {
    EXPECT_FALSE(is_checkpointing());
    return Tensors{t[0] * 2};
  };
  Checkpointing region(f, {forward_ad::make_dual(this->x.detach(), at::ones_like(this->x), level)});
  y = region.recompute(region.checkpoint())[0];
  // A tensor inside the layer: its memory is the wrapped one's.
  EXPECT_TRUE(at::equal(forward_ad::unpack_dual(y, level).tangent, at::full({4, 8}, 2.0f)));
}

// {x} --Checkpoint--> {index}, {values} --WaitInBackward--> --ReleaseInBackward-->
TYPED_TEST(Early, RidesOnTheFirstFloatingOutput) {
  Checkpointing region([](const Tensors& t) { return Tensors{t[0].argmax(1), t[0] * 2, t[0] * 3}; }, {this->x});
  const Tensors outputs = region.recompute(region.checkpoint());
  EXPECT_FALSE(outputs[0].requires_grad());
  EXPECT_EQ(outputs[1].grad_fn()->name(), "ReleaseInBackward");
  EXPECT_EQ(outputs[2].grad_fn()->name(), "Checkpoint");
  (outputs[1] + outputs[2]).sum().backward();
  EXPECT_TRUE(same_bits(this->x.grad(), at::full({4, 8}, 5.0f)));
}

TYPED_TEST(Early, AllowsABackwardInsideTheRegion) {
  const auto f = [this](const Tensor& t) {
    const at::AutoGradMode with_graph(true);  // the first run has none
    const Tensor inner = t.detach().requires_grad_();
    const Tensor slope = torch::autograd::grad({inner.exp().sin().sum()}, {inner})[0];
    return this->block(t) * slope;
  };
  this->expect_same([&] { return f(this->x); }, [&] { return checkpoint(kEarlyForm, f, this->x); });
}

TYPED_TEST(Early, AFailedBackwardLeavesARegionThatCanRunAgain) {
  bool fail = true;
  const Tensor y = checkpoint(
      kEarlyForm, [this](const Tensor& t) { return this->block(t); }, this->x * 1);
  Tensor z = y * 1;
  z.register_hook([&](const Tensor&) { TORCH_CHECK(!fail, "not yet"); });
  const Tensor loss = z.sum();
  EXPECT_THAT(error_of([&] { loss.backward({}, true); }), HasSubstr("not yet"));
  fail = false;
  loss.backward();
  EXPECT_TRUE(this->x.grad().defined());
}

// The gradient of `other` is ready before the region's node has its turn.
using EarlyOnOverdrive = CheckpointTest;
TEST_F(EarlyOnOverdrive, RefusesBeforeAnythingIsAccumulated) {
  const Tensor other = at::ones({3}).requires_grad_();
  for (const bool revolve : {false, true}) {
    const auto forward = [&] {
      const Layer layer = [this](const Tensor& t) { return block(t); };
      const Tensor y =
          revolve ? checkpoint_sequential({layer, layer}, x, Revolve{1}) : checkpoint(kEarlyForm, layer, x);
      return y.sum() + (other * 2).sum();
    };
    EXPECT_THAT(error_of([&] {
                  torch::autograd::backward({forward()}, {}, false, false, {x, other});
                }),
                HasSubstr("Checkpointing is not compatible"));
    EXPECT_THAT(error_of([&] { forward().backward({}, true, true); }), HasSubstr("no gradient of a gradient"));
    EXPECT_FALSE(other.grad().defined());
    const Tensor elsewhere = forward();
    EXPECT_TRUE(torch::autograd::grad({elsewhere}, {other})[0].defined()) << "the region is not needed";
  }
}

TEST(Dependency, ReleaseComesBeforeTheTokensNodesAndThoseBeforeWait) {
  Timeline timeline;
  const auto note = [&](const Tensor& tensor, const char* name) {
    tensor.register_hook([&timeline, name](const Tensor&) { timeline.add(name); });
  };
  const Tensor x = at::ones({2}).requires_grad_();
  const Tensor y = x * 2;
  note(y, "behind wait");
  auto [same, waits] = wait_in_backward(y);
  note(same, "behind release");
  const Tensor released = release_in_backward(same, waits);
  EXPECT_TRUE(same_bits(released.detach(), y.detach()));
  released.sum().backward();
  EXPECT_THAT(timeline.events(), ElementsAre("behind release", "behind wait"));
  EXPECT_TRUE(same_bits(x.grad(), at::full({2}, 2.0f)));
}

TEST(Dependency, AnEmptyTensorStandsForIt) {
  const Tensor one = dependency_token(at::kCPU, true);
  EXPECT_TRUE(one.is_same(dependency_token(at::kCPU, true)));
  EXPECT_FALSE(one.is_same(dependency_token(at::kCPU, false)));
  EXPECT_EQ(one.numel(), 0);
  EXPECT_TRUE(one.requires_grad());
  const Tensor x = at::ones({2}).requires_grad_();
  checkpoint(
      kEarlyForm, [](const Tensor& t) { return t * 2; }, x)
      .sum()
      .backward();
  EXPECT_FALSE(one.grad().defined());
}

}  // namespace
}  // namespace overdrive::checkpoint
