// What torchgpipe's tests ask of its Checkpoint and Recompute, and of Fork and Join, asked of the early form
// and of the dependencies here. On both engines.
#include "test/checkpoint/pipeline_fixture.h"
#include "test/support/engines.h"

namespace overdrive::checkpoint {
namespace {

Timeline* noted = nullptr;  // of the test that runs

// A node that notes both of its runs.
struct Noting : torch::autograd::Function<Noting> {
  static Tensor forward(torch::autograd::AutogradContext* context, const std::string& name,
                        const Tensor& tensor) {
    context->saved_data["name"] = name;
    noted->add(name, " forward");
    return tensor.detach();
  }
  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    noted->add(context->saved_data["name"].toStringRef(), " backward");
    return {Tensor(), gradients[0]};
  }
};

template <typename E>
class Torchgpipe : public DeviceCheckpointTest {
 protected:
  void SetUp() override {
    DeviceCheckpointTest::SetUp();
    E::install();
    noted = &timeline;
  }
  void TearDown() override {
    noted = nullptr;
    DeviceCheckpointTest::TearDown();
  }

  static Layer noting(const std::string& name) {
    return [name](const Tensor& t) { return Noting::apply(name, t); };
  }
  static Tensor leaf() { return at::rand({1}).requires_grad_(); }

  Timeline timeline;
};
TYPED_TEST_SUITE(Torchgpipe, test::Engines, test::EngineNames);

// {out} --Sum--> --Cat--> {a} --Checkpoint--> {a} <--.
//                    `--> {b} --Checkpoint--> {b} ---' (waits)
TYPED_TEST(Torchgpipe, ARegionWaitsForTheOneBehindIt) {
  Tensor a = this->leaf(), b = this->leaf();
  at::add(a + 1, 2);  // b's nodes are not the youngest by number alone
  a = checkpoint(kEarlyForm, this->noting("a"), a);
  auto [same, token] = wait_in_backward(a);
  b = checkpoint(kEarlyForm, this->noting("b"), release_in_backward(b, token));
  at::cat({same, b}).sum().backward();
  EXPECT_THAT(this->timeline.events(),
              ElementsAre("a forward", "b forward", "b forward", "b backward", "a forward", "a backward"));
}

TYPED_TEST(Torchgpipe, OutputsRequireGradientsWhateverTheInputsDo) {
  const Tensor plain = at::rand({1});
  Checkpointing region([](const Tensors& t) { return Tensors{t[0] * 2}; }, {plain});
  Tensors outputs = region.checkpoint();
  EXPECT_TRUE(outputs[0].requires_grad());
  outputs = region.recompute(outputs);
  EXPECT_TRUE(outputs[0].requires_grad());
  outputs[0].backward();
  EXPECT_FALSE(plain.grad().defined());
}

TYPED_TEST(Torchgpipe, AParameterHasAGradientWhereNoInputRequiresOne) {
  const Tensor parameter = this->leaf(), input = at::rand({1});
  checkpoint(
      kEarlyForm, [&](const Tensor& t) { return t * parameter; }, input)
      .backward();
  EXPECT_TRUE(same_bits(parameter.grad(), input));
}

TYPED_TEST(Torchgpipe, DropoutHasOneMask) {
  nn::Dropout dropout(0.5);
  const auto gradient = [&](const Layer& layer) {
    torch::manual_seed(0);
    const Tensor input = at::randn({3, 3}).requires_grad_();
    layer(input).norm().backward();
    return input.grad();
  };
  const Layer plain = [&](const Tensor& t) { return dropout(t); };
  EXPECT_TRUE(
      same_bits(gradient([&](const Tensor& t) { return checkpoint(kEarlyForm, plain, t); }), gradient(plain)));
}

TYPED_TEST(Torchgpipe, AFunctionKnowsWhichRunItIsIn) {
  const Layer asking = [this](const Tensor& t) {
    this->timeline.add(is_checkpointing(), is_recomputing());
    return t * 1;
  };
  asking(this->leaf()).backward();
  checkpoint(kEarlyForm, asking, this->leaf()).backward();
  EXPECT_THAT(this->timeline.events(), ElementsAre("00", "10", "01"));
}

TYPED_TEST(Torchgpipe, AWaitCopiesNothingAndItsTokenIsEmpty) {
  const Tensor input = at::zeros({2}).requires_grad_();
  const auto [y, token] = wait_in_backward(input);
  const auto [z, other] = wait_in_backward(y);
  EXPECT_EQ(y.data_ptr(), input.data_ptr());
  EXPECT_EQ(token.sizes(), at::IntArrayRef{0});
  EXPECT_EQ(other.data_ptr(), token.data_ptr());
  EXPECT_FALSE(other.is_same(token));
}

// The other device has a worker of its own: nothing but the token orders the two.
TYPED_TEST(Torchgpipe, AWaitHoldsBetweenDevices) {
  const Tensor far = test::device_leaf(0, {1});
  const auto [a, token] = wait_in_backward(Noting::apply("near", this->leaf()));
  const Tensor waits = release_in_backward(far, token.to(far.device()));
  const Tensor b = Noting::apply("far", waits).cpu();
  this->timeline.clear();
  (a + b).sum().backward();
  EXPECT_THAT(this->timeline.events(), ElementsAre("far backward", "near backward"));
}

TYPED_TEST(Torchgpipe, AWaitKeepsNoNode) {
  std::weak_ptr<int> alive;
  {
    const auto life = std::make_shared<int>();
    alive = life;
    Tensor made = Noting::apply("x", this->leaf());
    made.register_hook([life](const Tensor&) {});
    auto [same, token] = wait_in_backward(made);
    made = release_in_backward(same, token);
    made.backward();
  }
  EXPECT_TRUE(alive.expired());
}

// Two stages that draw for each of ten micro-batches, all of which run again: an element is dropped where its
// gradient is.
TYPED_TEST(Torchgpipe, StagesDrawTheirNumbersAgain) {
  const Layer dropouts = [](Tensor t) {
    for (int i = 0; i < 100; ++i) t = at::dropout(t, 0.001, /*train=*/true);
    return t;
  };
  const Stage stage{.layers = {dropouts}, .device = at::Device(at::kCPU), .parameters = {}};
  const Pipeline pipeline({stage, stage}, {.chunks = 10, .checkpointed = Checkpointed::kAlways});
  const Tensor input = at::rand({10, 10}).requires_grad_();
  const Tensor output = pipeline.forward(input);
  output.norm().backward();
  EXPECT_FALSE(output.all().item<bool>()) << "nothing was dropped";
  EXPECT_TRUE(at::equal(output.to(at::kBool), input.grad().to(at::kBool)));
}

TYPED_TEST(Torchgpipe, AStageThatThrowsEndsTheForward) {
  const auto stage = [](const Layer& layer) {
    return Stage{.layers = {layer}, .device = at::Device(at::kCPU), .parameters = {}};
  };
  const Layer pass = [](const Tensor& t) { return t; };
  const Layer fail = [](const Tensor&) -> Tensor { throw std::runtime_error("expected"); };
  const Pipeline pipeline({stage(pass), stage(pass), stage(fail)}, {.chunks = 3});
  EXPECT_THROW(pipeline.forward(at::rand({3})), std::runtime_error);
}

}  // namespace
}  // namespace overdrive::checkpoint
