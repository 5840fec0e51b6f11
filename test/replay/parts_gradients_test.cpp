// Gradients of parameters that come and go around a captured part: the program or the function takes them away,
// replaces them and makes them elsewhere, and the part may not read them.
#include "test/replay/parts_fixture.h"

namespace overdrive::test {
namespace {

using namespace torch::nn;

// Two layers of one model; a part computes the first alone.
struct TwoLayersImpl : Module {
  TwoLayersImpl() : used(6, 6), other(6, 6) {
    register_module("used", used);
    register_module("other", other);
  }
  Linear used;
  Linear other;
};

at::Tensor input(int i) { return batch_of(i, {4, 6}, {1})[0]; }

using Around = std::function<void(TwoLayersImpl&, const at::Tensor&, int)>;

// The function takes gradients away by `take`; the rest of the program is `around`, with the part's output.
PartProgram taking(const std::function<void(TwoLayersImpl&)>& take, const Around& around,
                   bool with_graph = true) {
  auto model = std::make_shared<TwoLayersImpl>();
  return {.model = model,
          .function =
              [=](const Tensors& in) {
                const at::AutoGradMode mode(with_graph && at::GradMode::is_enabled());
                take(*model);
                return Tensors{model->used(in[0]).tanh()};
              },
          .step =
              [=](const PartFunction& part, int i) {
                const at::Tensor y = part({input(i)})[0];
                around(*model, y, i);
                return Tensors{y.detach()};
              }};
}

// zero_grad() has an operator for each gradient that is there, so with these coming and going it is another
// function in each call.
void take_all(TwoLayersImpl& model) {
  for (const at::Tensor& parameter : model.parameters()) parameter.mutable_grad().reset();
}

// The part has no use for the other layer, whose gradient it takes away.
TEST(PartGradients, OfALayerThatThePartDoesNotUse) {
  PartBesideEager both([] {
    return taking(take_all, [](TwoLayersImpl& model, const at::Tensor& y, int i) {
      if (i % 3 == 2) model.other->weight.square().sum().backward();
      y.square().sum().backward();
    });
  });
  EXPECT_EQ(both.run(60), "") << both.part().explain();
  EXPECT_GT(replays(both.part().stats()), 30u) << both.part().explain();
}

// None in the recordings.
TEST(PartGradients, OfALayerThatThePartDoesNotUseLate) {
  PartBesideEager both([] {
    return taking(take_all, [](TwoLayersImpl& model, const at::Tensor& y, int i) {
      if (i > 20 && i % 3 == 2) model.other->weight.square().sum().backward();
      y.square().sum().backward();
    });
  });
  EXPECT_EQ(both.run(60), "") << both.part().explain();
  EXPECT_GT(replays(both.part().stats()), 30u) << both.part().explain();
}

TEST(PartGradients, ByZeroGrad) {
  PartBesideEager both([] {
    return taking([](TwoLayersImpl& model) { model.zero_grad(); },
                  [](TwoLayersImpl& model, const at::Tensor& y, int i) {
                    if (i > 20 && i % 7 == 2) model.other->weight.square().sum().backward();
                    y.square().sum().backward();
                  });
  });
  EXPECT_EQ(both.run(60), "") << both.part().explain();
}

// A recording that met the gradient differs from the next one, which met none, and counts no more: replays that
// are compared have the operators of zero_grad().
TEST(PartGradients, ThatOneRecordingAloneHasMet) {
  for (int early = 0; early < 8; ++early) {
    const auto program = [early] {
      return taking([](TwoLayersImpl& model) { model.zero_grad(); },
                    [early](TwoLayersImpl& model, const at::Tensor& y, int i) {
                      y.square().sum().backward();
                      model.zero_grad();
                      if (i == early || i >= 10) model.other->weight.square().sum().backward();
                    });
    };
    PartBesideEager both(program, {.check_every = 5});
    EXPECT_EQ(both.run(40), "") << "in call " << early << "\n" << both.part().explain();
    EXPECT_GT(replays(both.part().stats()), 15u) << "in call " << early << "\n" << both.part().explain();
  }
}

TEST(PartGradients, WithoutAGraph) {
  PartBesideEager both([] {
    return taking(
        take_all,
        [](TwoLayersImpl& model, const at::Tensor&, int i) {
          if (i % 3 != 1) model.used(input(i + 100)).square().sum().backward();
          if (i % 5 == 2) model.other->weight.square().sum().backward();
        },
        false);
  });
  EXPECT_EQ(both.run(60), "") << both.part().explain();
}

TEST(PartGradients, OfSomeParametersAlone) {
  PartBesideEager both([] {
    return taking([](TwoLayersImpl& model) { model.used->bias.mutable_grad().reset(); },
                  [](TwoLayersImpl& model, const at::Tensor& y, int i) {
                    if (i % 4 == 3) model.used->weight.mutable_grad().reset();
                    if (i % 7 == 5) model.zero_grad();
                    if (i % 5 != 2) y.square().sum().backward();
                    if (i % 6 == 1) model.used->bias.square().sum().backward();
                  });
  });
  EXPECT_EQ(both.run(80), "") << both.part().explain();
}

TEST(PartGradients, OfOneOfTheOtherLayer) {
  PartBesideEager both([] {
    return taking([](TwoLayersImpl& model) { model.other->bias.mutable_grad().reset(); },
                  [](TwoLayersImpl& model, const at::Tensor& y, int i) {
                    if (i % 5 == 4) (model.other->bias.sum() * model.other->weight).sum().backward();
                    if (i % 7 == 5) model.zero_grad();
                    y.square().sum().backward();
                  });
  });
  EXPECT_EQ(both.run(80), "") << both.part().explain();
}

// Gradients of another memory, with other strides, of a graph.
TEST(PartGradients, ThatTheProgramReplaces) {
  PartBesideEager both([] {
    return taking([](TwoLayersImpl&) {},
                  [](TwoLayersImpl& model, const at::Tensor& y, int i) {
                    const at::Tensor given = batch_of(i, {6, 6}, {1})[0];
                    if (i % 4 == 0) model.used->weight.mutable_grad() = given.t().clone();
                    if (i % 4 == 1) model.used->weight.mutable_grad() = given.clone();
                    if (i % 4 == 2) model.used->weight.mutable_grad() = torch::ones({}).expand({6, 6}).clone();
                    if (i % 3 == 0) model.used->bias.mutable_grad().reset();
                    y.square().sum().backward();
                    if (i % 5 == 3) model.zero_grad(false);
                    if (i % 8 == 7) model.zero_grad();
                  });
  });
  EXPECT_EQ(both.run(80), "") << both.part().explain();
  EXPECT_GT(replays(both.part().stats()), 60u) << both.part().explain();
}

TEST(PartGradients, ThatTheFunctionZeroes) {
  PartBesideEager both([] {
    return taking([](TwoLayersImpl& model) { model.zero_grad(false); },
                  [](TwoLayersImpl& model, const at::Tensor& y, int i) {
                    y.square().sum().backward();
                    if (i % 9 == 5) model.other->weight.square().sum().backward();
                    if (i % 11 == 7) model.zero_grad();
                    if (i % 11 == 4) model.used->weight.mutable_grad() = torch::ones({6, 6});
                  });
  });
  EXPECT_EQ(both.run(80), "") << both.part().explain();
}

TEST(PartGradients, ThatTheFunctionReads) {
  PartBesideEager both([] {
    auto model = std::make_shared<TwoLayersImpl>();
    return PartProgram{.model = model,
                       .function =
                           [=](const Tensors& in) {
                             at::Tensor y = model->used(in[0]);
                             if (model->other->weight.grad().defined())
                               y = y + model->other->weight.grad().sum();
                             return Tensors{y};
                           },
                       .step =
                           [=](const PartFunction& part, int i) {
                             const at::Tensor y = part({input(i)})[0];
                             if (i % 6 == 3) model->other->weight.square().sum().backward();
                             if (i % 12 == 8) model->other->weight.mutable_grad().reset();
                             y.square().sum().backward();
                             return Tensors{y.detach()};
                           }};
  });
  EXPECT_EQ(both.run(80), "") << both.part().explain();
}

// The backward of the first call comes after the second call, whose function takes gradients away.
TEST(PartGradients, WithCallsInFlight) {
  PartBesideEager both([] {
    auto model = std::make_shared<TwoLayersImpl>();
    return PartProgram{.model = model,
                       .function =
                           [=](const Tensors& in) {
                             take_all(*model);
                             return Tensors{model->used(in[0]).tanh()};
                           },
                       .step =
                           [=](const PartFunction& part, int i) {
                             const at::Tensor a = part({input(i)})[0];
                             if (i % 3 == 0) a.sum().backward({}, true);
                             const at::Tensor b = part({input(i + 50)})[0];
                             if (i % 4 == 1) model->other(b).sum().backward({}, true);
                             b.square().sum().backward({}, true);
                             const at::Tensor c = part({input(i + 90)})[0];
                             a.square().sum().backward();
                             (b + c).sum().backward();
                             Tensors results = gradients_of(model->parameters());
                             for (at::Tensor& each : results) each = each.defined() ? each.clone() : each;
                             results.push_back(c.detach());
                             return results;
                           }};
  });
  EXPECT_EQ(both.run(60), "") << both.part().explain();
  EXPECT_GT(replays(both.part().stats()), 100u) << both.part().explain();
}

// The function runs once more in a backward, which takes nothing away.
TEST(PartGradients, WithBackwardsThatRunTheFunctionOnceMore) {
  PartBesideEager both([] {
    return taking(take_all, [](TwoLayersImpl& model, const at::Tensor& y, int i) {
      if (i % 3 == 2) model.other->weight.square().sum().backward();
      if (i % 5 == 4) {
        (void)torch::autograd::grad({y.sum()}, {model.used->weight}, {}, true);
        y.backward(torch::ones({6, 4}).t());
      } else {
        y.square().sum().backward();
      }
    });
  });
  EXPECT_EQ(both.run(60), "") << both.part().explain();
}

// Of the two backwards of a graph the second one comes in a form that no recording has. There the function runs
// once more, and finds the gradients of the first.
TEST(PartGradients, ZeroedInPlaceByAFunctionThatRunsOnceMore) {
  PartBesideEager both([] {
    auto model = std::make_shared<TwoLayersImpl>();
    return PartProgram{.model = model,
                       .function =
                           [=](const Tensors& in) {
                             for (const at::Tensor& parameter : model->parameters()) {
                               if (parameter.grad().defined()) parameter.mutable_grad().zero_();
                             }
                             return Tensors{model->used(in[0]).tanh()};
                           },
                       .step =
                           [=](const PartFunction& part, int i) {
                             const at::Tensor y = part({input(i)})[0];
                             y.square().sum().backward({}, true);
                             y.backward(torch::full({4, 6 + i}, 0.5).narrow(1, 0, 6));
                             Tensors results = gradients_of(model->parameters());
                             for (at::Tensor& each : results) each = each.defined() ? each.clone() : each;
                             take_all(*model);
                             return results;
                           }};
  });
  EXPECT_EQ(both.run(30), "") << both.part().explain();
  EXPECT_GT(both.part().stats().again, 0u) << both.part().explain();
}

TEST(PartGradients, OfParametersThatAreFrozenInTurn) {
  PartBesideEager both([] {
    return taking(take_all, [](TwoLayersImpl& model, const at::Tensor& y, int i) {
      if (y.requires_grad()) y.square().sum().backward();
      model.other->weight.square().sum().backward();
      if (i % 10 == 9) model.used->weight.set_requires_grad(!model.used->weight.requires_grad());
      if (i % 14 == 13) model.used->bias.set_requires_grad(!model.used->bias.requires_grad());
    });
  });
  EXPECT_EQ(both.run(90), "") << both.part().explain();
}

TEST(PartGradients, UnderNoGradInTurn) {
  PartBesideEager both([] {
    auto model = std::make_shared<TwoLayersImpl>();
    return PartProgram{.model = model,
                       .function =
                           [=](const Tensors& in) {
                             take_all(*model);
                             return Tensors{model->used(in[0]).tanh()};
                           },
                       .step =
                           [=](const PartFunction& part, int i) {
                             const at::Tensor y = part({input(i)})[0];
                             y.square().sum().backward();
                             if (i % 2 == 1) model->other->weight.square().sum().backward();
                             if (i % 3 == 1) {
                               const torch::NoGradGuard no_grad;
                               return Tensors{y.detach(), part({input(i + 50)})[0]};
                             }
                             return Tensors{y.detach()};
                           }};
  });
  EXPECT_EQ(both.run(80), "") << both.part().explain();
}

// zero_grad(false) of a module gives another gradient. The refusal did not name it.
TEST(PartGradients, ThatAreFilledWithZerosInside) {
  PartBesideEager both([] {
    auto net = torch::nn::Linear(2, 3);
    return PartProgram{.model = net.ptr(),
                       .function =
                           [net](const Tensors& in) mutable {
                             net->zero_grad(false);
                             return Tensors{net->forward(in[0])};
                           },
                       .step =
                           [=](const PartFunction& part, int i) mutable {
                             if (i % 3 == 0) net->zero_grad(true);
                             part({batch_of(i, {8, 2}, {1})[0]})[0].square().sum().backward();
                             return Tensors{};
                           }};
  });
  EXPECT_EQ(both.run(60), "") << both.part().explain();
  EXPECT_NE(both.part().refusal().find("as zero_grad(false) of a module does"), std::string::npos)
      << both.part().explain();
}

}  // namespace
}  // namespace overdrive::test
