// Programs at the edges of a captured part: several backwards, threads, unusual gradients, functions that do
// more than compute.
#include "test/replay/parts_fixture.h"
#include "test/support/engines.h"

#include <torch/csrc/autograd/autograd.h>

#include <thread>

namespace overdrive::test {
namespace {

using namespace torch::nn;

// Two heads without a common trunk have graphs of their own in eager, and each is freed by its own backward.
TEST(PartEdges, TwoOutputsWithABackwardEach) {
  PartBesideEager both([] {
    auto model = std::make_shared<ModuleListImpl>();
    model->push_back(Linear(6, 3));
    model->push_back(Linear(6, 2));
    return PartProgram{.model = model,
                       .function =
                           [model](const Tensors& in) {
                             return Tensors{model->at<LinearImpl>(0).forward(in[0]).tanh(),
                                            model->at<LinearImpl>(1).forward(in[0]).tanh()};
                           },
                       .step =
                           [=](const PartFunction& part, int i) {
                             model->zero_grad();
                             const Tensors y = part({batch_of(i, {4, 6}, {1})[0]});
                             y[0].sum().backward();
                             y[1].pow(2).sum().backward();
                             EXPECT_THAT(error_of([&] { y[1].sum().backward(); }),
                                         testing::HasSubstr("a second time"));
                             return Tensors{y[0].detach()};
                           }};
  });
  EXPECT_EQ(both.run(40), "") << both.part().explain();
}

TEST(PartEdges, ASecondBackwardWhereNothingWasSaved) {
  PartBesideEager both([] {
    auto model = std::make_shared<LinearImpl>(6, 6);
    return PartProgram{.model = model,
                       .function = [model](const Tensors& in) { return Tensors{in[0] + model->bias}; },
                       .step =
                           [=](const PartFunction& part, int i) {
                             model->zero_grad();
                             const at::Tensor y = part({batch_of(i, {4, 6}, {1})[0]})[0].sum();
                             y.backward();
                             if (i > 8) y.backward();
                             return Tensors{y.detach()};
                           }};
  });
  EXPECT_EQ(both.run(20), "") << both.part().explain();
  EXPECT_GT(replays(both.part().stats()), 10u) << both.part().explain();
}

// A change in a view saves nothing, and its node is freed all the same.
TEST(PartEdges, ASecondBackwardOfAChangeInAView) {
  PartBesideEager both([] {
    auto model = std::make_shared<LinearImpl>(6, 6);
    return PartProgram{.model = model,
                       .function =
                           [model](const Tensors& in) {
                             at::Tensor y = in[0] + model->bias;
                             y.select(0, 0).add_(model->bias);
                             return Tensors{y};
                           },
                       .step =
                           [=](const PartFunction& part, int i) {
                             model->zero_grad();
                             const at::Tensor y = part({batch_of(i, {4, 6}, {1})[0]})[0].sum();
                             y.backward();
                             if (i > 8) {
                               EXPECT_THAT(error_of([&] { y.backward(); }),
                                           testing::HasSubstr("a second time"));
                             }
                             return Tensors{y.detach()};
                           }};
  });
  EXPECT_EQ(both.run(20), "") << both.part().explain();
  EXPECT_GT(replays(both.part().stats()), 10u) << both.part().explain();
}

// The force of an energy: a leaf that the function makes for itself.
TEST(PartEdges, ALeafThatTheFunctionMakes) {
  PartBesideEager both([] {
    auto net = Sequential(Linear(6, 8), Tanh(), Linear(8, 1));
    return PartProgram{
        .model = net.ptr(),
        .function =
            [net](const Tensors& in) mutable {
              const at::Tensor x = in[0].detach().requires_grad_();
              const at::Tensor energy = net->forward(x);
              return Tensors{energy, torch::autograd::grad({energy.sum()}, {x}, {}, true, true)[0]};
            },
        .step =
            [=](const PartFunction& part, int i) mutable {
              net->zero_grad();
              const Tensors y = part({batch_of(i, {4, 6}, {1})[0]});
              const at::Tensor loss = y[0].sum() + y[1].pow(2).sum();
              loss.backward();
              return Tensors{loss};
            }};
  });
  EXPECT_EQ(both.run(40), "") << both.part().explain();
}

TEST(PartEdges, APartInAPartThatRunsOnceMore) {
  Linear inner_net(6, 6);
  auto model = std::make_shared<ModuleListImpl>();
  PartBesideEager both([] {
    auto net = Sequential(Linear(6, 6), Tanh(), Linear(6, 6));
    auto inner = std::make_shared<CapturedStep>(
        [net](const Tensors& in) mutable { return Tensors{net->forward(in[0])}; },
        CaptureOptions{.modules = {net.ptr()}}, true);
    return PartProgram{.model = net.ptr(),
                       .function = [inner](const Tensors& in) { return Tensors{inner->call(in)[0].sin()}; },
                       .step =
                           [=](const PartFunction& part, int i) {
                             net.ptr()->zero_grad();
                             const at::Tensor x = batch_of(i, {4, 6}, {1})[0].requires_grad_();
                             const at::Tensor y = part({x})[0];
                             if (i % 5 == 4) return Tensors{torch::autograd::grad({y.sum()}, {x})[0]};
                             y.sum().backward();
                             return Tensors{y, x.grad()};
                           }};
  });
  EXPECT_EQ(both.run(60), "") << both.part().explain();
  EXPECT_GT(both.part().stats().again, 5u) << both.part().explain();
}

// A forward that is never followed by a backward does not tell that there is none.
TEST(PartEdges, ABackwardThatThrows) {
  PartBesideEager both([] {
    auto net = std::make_shared<LinearImpl>(6, 6);
    return PartProgram{.model = net,
                       .function =
                           [net](const Tensors& in) {
                             const at::Tensor y = net->forward(in[0]);
                             at::Tensor z = y.exp();
                             z.mul_(2);
                             return Tensors{y.tanh(), z};
                           },
                       .step =
                           [=](const PartFunction& part, int i) {
                             net->zero_grad();
                             const Tensors y = part({batch_of(i, {4, 6}, {1})[0]});
                             if (i == 9) y[1].sum().backward();
                             y[0].sum().backward();
                             return y;
                           }};
  });
  EXPECT_EQ(both.run(20), "") << both.part().explain();
}

TEST(PartEdges, ASparseGradientOfAnOutput) {
  PartBesideEager both([] {
    auto net = std::make_shared<LinearImpl>(6, 6);
    return PartProgram{
        .model = net,
        .function = [net](const Tensors& in) { return Tensors{net->forward(in[0]).tanh()}; },
        .step =
            [=](const PartFunction& part, int i) {
              net->zero_grad();
              const at::Tensor y = part({batch_of(i, {4, 6}, {1})[0]})[0];
              const at::Tensor rows = torch::embedding(y, torch::tensor({1, 2}), -1, false, i > 20);
              rows.pow(2).sum().backward();
              return Tensors{rows};
            }};
  });
  EXPECT_EQ(both.run(24), "") << both.part().explain();
}

TEST(PartEdges, AConjugatedGradient) {
  PartBesideEager both([] {
    auto net = std::make_shared<LinearImpl>(6, 6);
    return PartProgram{
        .model = net,
        .function =
            [net](const Tensors& in) {
              const at::Tensor y = net->forward(in[0]);
              return Tensors{torch::complex(y.sin(), y.cos())};
            },
        .step =
            [=](const PartFunction& part, int i) {
              net->zero_grad();
              const at::Tensor y = part({batch_of(i, {4, 6}, {1})[0]})[0];
              const at::Tensor g = torch::complex(batch_of(i, {4, 6}, {1})[0], batch_of(i + 3, {4, 6}, {1})[0]);
              y.backward(g.conj());
              return Tensors{at::view_as_real(y)};
            }};
  });
  EXPECT_EQ(both.run(24), "") << both.part().explain();
}

TEST(PartEdges, GradModeSetInside) {
  PartBesideEager both([] {
    auto net = std::make_shared<LinearImpl>(6, 6);
    return PartProgram{.model = net,
                       .function =
                           [net](const Tensors& in) {
                             const at::AutoGradMode with_graph(true);
                             return Tensors{net->forward(in[0]).tanh()};
                           },
                       .step =
                           [=](const PartFunction& part, int i) {
                             net->zero_grad();
                             at::Tensor y;
                             {
                               const at::NoGradGuard no_graph;
                               y = part({batch_of(i, {4, 6}, {1})[0]})[0];
                             }
                             y.sum().backward();
                             return Tensors{y.detach()};
                           }};
  });
  EXPECT_EQ(both.run(24), "") << both.part().explain();
}

// Gradients of all parameters are there at once, and hooks run in eager's order nevertheless.
TEST(PartEdges, HooksOfParametersInEagersOrder) {
  for (const int when : {0, 12}) {
    std::vector<std::string> logs(2);
    int made = 0;
    PartBesideEager both([&] {
      PartProgram program = part_of_net(
          Sequential(Linear(8, 8), Tanh(), Linear(8, 8), Tanh(), Linear(8, 8), Linear(8, 8), Linear(8, 4)),
          {5, 8}, {5, 4});
      std::string* log = &logs[made++];
      program.step = [=, model = program.model, train = program.step](const PartFunction& part, int i) {
        if (i == when) {
          const Tensors all = model->parameters();
          for (size_t k = 0; k < all.size(); ++k) {
            all[k].register_hook([=](const at::Tensor&) { *log += std::to_string(k); });
          }
        }
        *log += " ";
        return train(part, i);
      };
      return program;
    });
    EXPECT_EQ(both.run(24), "") << both.part().explain();
    EXPECT_EQ(logs[0], logs[1]);
    EXPECT_GT(both.part().stats().backwards, 5u) << both.part().explain();
  }
}

// Eager does not run the nodes before an input that no gradient reaches, and does not free them.
TEST(PartEdges, OutputsOfDifferentInputs) {
  PartBesideEager both([] {
    auto net = std::make_shared<LinearImpl>(6, 6);
    return PartProgram{.model = net,
                       .function =
                           [](const Tensors& in) {
                             return Tensors{in[0].tanh(), in[1].sin()};
                           },
                       .step =
                           [=](const PartFunction& part, int i) {
                             net->zero_grad();
                             const Tensors x = batch_of(i, {4, 6}, {4, 6});
                             const Tensors y = part({net->forward(x[0]), net->forward(x[1])});
                             y[0].sum().backward();
                             y[1].sum().backward();
                             return Tensors{y[0].detach()};
                           }};
  });
  EXPECT_EQ(both.run(24), "") << both.part().explain();
  EXPECT_THAT(both.part().refusal(), testing::HasSubstr("make two parts"));
}

TEST(PartEdges, AHookOfAParameterThatAnOutputDoesNotUse) {
  PartBesideEager both([] {
    auto model = std::make_shared<ModuleListImpl>();
    model->push_back(Linear(6, 3));
    model->push_back(Linear(6, 2));
    auto count = std::make_shared<int>(0);
    return PartProgram{.model = model,
                       .function =
                           [model](const Tensors& in) {
                             return Tensors{model->at<LinearImpl>(0).forward(in[0]).tanh(),
                                            model->at<LinearImpl>(1).forward(in[0]).tanh()};
                           },
                       .step =
                           [=](const PartFunction& part, int i) {
                             model->zero_grad();
                             if (i == 10)
                               model->parameters()[2].register_hook([=](const at::Tensor&) { ++*count; });
                             const Tensors y = part({batch_of(i, {4, 6}, {1})[0]});
                             (i % 3 == 2 ? y[0].sum() : y[0].sum() + y[1].sum()).backward();
                             return Tensors{y[0].detach(), torch::tensor(*count)};
                           }};
  });
  EXPECT_EQ(both.run(40), "") << both.part().explain();
  EXPECT_THAT(both.part().refusal(), testing::HasSubstr("has a hook"));
}

// A leaf and a view look alike but for the views that are made of them in the backward.
TEST(PartEdges, AnInputThatIsAViewNowAndThen) {
  PartBesideEager both(
      [] {
        auto net = std::make_shared<LinearImpl>(6, 6);
        return PartProgram{.model = net,
                           .function = [net](const Tensors& in) { return Tensors{net->forward(in[0]).tanh()}; },
                           .step =
                               [=](const PartFunction& part, int i) {
                                 net->zero_grad();
                                 at::Tensor x = batch_of(i, {4, 6}, {1})[0];
                                 if (i % 4 == 3) x = x.t().contiguous().t();
                                 at::Tensor y = i % 4 == 3 ? x.contiguous().view({4, 6}) : x;
                                 if (i % 4 == 1) y = y.clone();
                                 y.requires_grad_();
                                 part({y})[0].sum().backward();
                                 return Tensors{y.grad()};
                               }};
      },
      {.check_every = 1});
  EXPECT_EQ(both.run(40), "") << both.part().explain();
}

// Eager rewrites the graph of a view that is changed, and gradients then have other strides.
TEST(PartEdges, AnOutputThatIsAViewAndIsChanged) {
  PartBesideEager both([] {
    auto net = Sequential(Linear(6, 6), BatchNorm1d(6));
    return PartProgram{
        .model = net.ptr(),
        .function = [net](const Tensors& in) mutable { return Tensors{net->forward(in[0]).t()}; },
        .step =
            [=](const PartFunction& part, int i) {
              net.ptr()->zero_grad();
              const at::Tensor y = part({batch_of(i, {4, 6}, {1})[0]})[0];
              {
                const at::NoGradGuard no_graph;
                y.mul_(2);
              }
              y.backward(batch_of(i, {6, 4}, {1})[0]);
              return Tensors{y.detach()};
            }};
  });
  EXPECT_EQ(both.run(20), "") << both.part().explain();
  EXPECT_THAT(both.part().refusal(), testing::HasSubstr("is a view"));
}

// Each thread numbers its nodes, and eager's backward goes by the numbers.
TEST(PartEdges, CallsOfOneGraphOnTwoThreads) {
  PartBesideEager both([] {
    auto net = std::make_shared<LinearImpl>(6, 6);
    return PartProgram{
        .model = net,
        .function =
            [net](const Tensors& in) {
              return Tensors{net->forward(net->forward(net->forward(in[0]).tanh()).tanh()).sin()};
            },
        .step =
            [=](const PartFunction& part, int i) {
              net->zero_grad();
              at::Tensor a = part({batch_of(i, {4, 6}, {1})[0]})[0], b, c;
              if (i > 8) {
                std::thread([&] { b = part({batch_of(i + 1, {4, 6}, {1})[0]})[0]; }).join();
                std::thread([&] { c = part({batch_of(i + 2, {4, 6}, {1})[0]})[0]; }).join();
                a = a + b * 0.3 + c * 0.7;
              }
              a.sum().backward();
              return Tensors{a.detach()};
            }};
  });
  EXPECT_EQ(both.run(40), "") << both.part().explain();
  EXPECT_GT(replays(both.part().stats()), 20u) << both.part().explain();
}

TEST(PartEdges, VersionsOfOutputs) {
  PartBesideEager both([] {
    auto net = std::make_shared<LinearImpl>(6, 6);
    return PartProgram{
        .model = net,
        .function =
            [net](const Tensors& in) {
              at::Tensor y = net->forward(in[0]);
              return Tensors{y.mul_(2).add_(1), net->forward(in[0]).argmax(1).add_(1)};
            },
        .step =
            [=](const PartFunction& part, int i) {
              net->zero_grad();
              const at::Tensor x = batch_of(i, {4, 6}, {1})[0];
              const Tensors y = part({x});
              y[0].sum().backward();
              at::NoGradGuard no_graph;
              const Tensors z = part({x});
              return Tensors{torch::tensor(
                  {static_cast<int64_t>(y[0]._version()), static_cast<int64_t>(y[1]._version()),
                   static_cast<int64_t>(z[0]._version()), static_cast<int64_t>(z[1]._version())})};
            }};
  });
  EXPECT_EQ(both.run(24), "") << both.part().explain();
  EXPECT_GT(replays(both.part().stats()), 30u) << both.part().explain();
}

// What the function changes is as after one call, counters included.
TEST(PartEdges, RunningStatisticsWhereTheFunctionRunsOnceMore) {
  PartBesideEager both([] {
    auto net = Sequential(Linear(6, 6), BatchNorm1d(6), Dropout(0.4), Linear(6, 6));
    return PartProgram{.model = net.ptr(),
                       .function = [net](const Tensors& in) mutable { return Tensors{net->forward(in[0])}; },
                       .step =
                           [=](const PartFunction& part, int i) {
                             net.ptr()->zero_grad();
                             const at::Tensor x = batch_of(i, {4, 6}, {1})[0].requires_grad_();
                             const at::Tensor y = part({x})[0];
                             if (i % 5 == 4) return Tensors{torch::autograd::grad({y.pow(2).sum()}, {x})[0]};
                             y.sum().backward();
                             return Tensors{y, x.grad()};
                           }};
  });
  EXPECT_EQ(both.run(60), "") << both.part().explain();
  EXPECT_GT(both.part().stats().again, 5u) << both.part().explain();
}

// The function would make another graph than the one that the backward is of: an error, not other bits.
TEST(PartEdges, AnotherModeBeforeTheBackward) {
  torch::manual_seed(3);
  auto net = Sequential(Linear(6, 6), Dropout(0.4), Linear(6, 6));
  auto part = captured(net);
  for (int i = 0; i < 20; ++i) {
    const at::Tensor x = batch_of(i, {4, 6}, {1})[0].requires_grad_();
    part(x).sum().backward();
  }
  const at::Tensor x = batch_of(1, {4, 6}, {1})[0].requires_grad_();
  const at::Tensor y = part(x);
  net->eval();
  EXPECT_THAT(error_of([&] { torch::autograd::grad({y.sum()}, {x}); }), testing::HasSubstr("captured part"));
}

TEST(PartEdges, MemoryOfManyGraphsThatLivedOnce) {
  auto net = Sequential(Linear(6, 6), Tanh(), Linear(6, 6));
  auto part = captured(net);
  const auto call = [&](int i) { return part(batch_of(i, {4, 6}, {1})[0]); };
  for (int i = 0; i < 20; ++i) call(i).sum().backward();
  {
    Tensors kept;
    for (int i = 0; i < 50; ++i) kept.push_back(call(i));
    EXPECT_THAT(part.explain(), testing::HasSubstr("50 runs")) << part.explain();
  }
  for (int i = 0; i < 600; ++i) call(i).sum().backward();
  EXPECT_THAT(part.explain(), testing::Not(testing::HasSubstr("50 runs"))) << part.explain();
}

TEST(PartEdges, CallsOnTwoThreadsAtOnce) {
  auto net = Sequential(Linear(6, 6), Tanh(), Linear(6, 6));
  auto part = captured(net);
  const at::Tensor x = batch_of(1, {4, 6}, {1})[0];
  const at::Tensor expected = net->forward(x);
  const auto work = [&] {
    for (int i = 0; i < 2000; ++i) {
      const at::Tensor y = part(x.clone());
      ASSERT_TRUE(same_bits(y, expected));
      if (i % 4 == 0) torch::autograd::grad({y.sum()}, {net->parameters()[0]});
    }
  };
  std::string error = "(no error)";
  std::thread other([&] { error = error_of(work); });
  EXPECT_EQ(error_of(work), "(no error)");
  other.join();
  EXPECT_EQ(error, "(no error)");
}

// There, a composite operator reaches the recorder as it is, and changes running statistics without a word.
TEST(PartEdges, RunningStatisticsInInferenceMode) {
  PartBesideEager both([] {
    using namespace torch::nn;
    Sequential net(Linear(6, 4), BatchNorm1d(4), ReLU());
    return PartProgram{.model = net.ptr(),
                       .function = [net](const Tensors& in) mutable { return Tensors{net->forward(in[0])}; },
                       .step =
                           [](const PartFunction& part, int i) {
                             const c10::InferenceMode mode;
                             return Tensors{part({batch_of(i, {5, 6}, {1})[0]})[0].mul(1)};
                           }};
  });
  EXPECT_EQ(both.run(20), "") << both.part().explain();
  EXPECT_GE(replays(both.part().stats()), 14u) << both.part().explain();
}

// A replay takes away what the function takes away, and a function that runs once more in a backward does not.
TEST(PartEdges, ZeroGradInTheFunction) {
  PartBesideEager both([] {
    auto model = std::make_shared<LinearImpl>(6, 6);
    return PartProgram{.model = model,
                       .function =
                           [model](const Tensors& in) {
                             model->zero_grad();
                             return Tensors{model->forward(in[0]).tanh()};
                           },
                       .step =
                           [=](const PartFunction& part, int i) {
                             const at::Tensor y = part({batch_of(i, {4, 6}, {1})[0]})[0];
                             if (i % 5 == 4) model->bias.square().sum().backward();
                             (i % 7 == 6 ? y.sum() : y.square().sum()).backward();
                             return Tensors{y.detach()};
                           }};
  });
  EXPECT_EQ(both.run(60), "") << both.part().explain();
  EXPECT_GT(replays(both.part().stats()), 30u) << both.part().explain();
}

TEST(PartEdges, TheGradientOfAnInputIsTakenAway) {
  PartBesideEager both([] {
    auto x = std::make_shared<at::Tensor>(at::ones({4}).requires_grad_());
    return PartProgram{.model = nullptr,
                       .function =
                           [](const Tensors& in) {
                             at::Tensor input = in[0];
                             input.mutable_grad().reset();
                             return Tensors{input.square()};
                           },
                       .step =
                           [=](const PartFunction& part, int i) {
                             if (i < 10) x->mutable_grad().reset();
                             part({*x})[0].sum().backward();
                             return Tensors{x->grad().clone()};
                           }};
  });
  EXPECT_EQ(both.run(30), "") << both.part().explain();
  EXPECT_THAT(both.part().refusal(), testing::HasSubstr("gradient of an argument"));
}

}  // namespace
}  // namespace overdrive::test
