// Training goes on from a file, with the bits that eager has.
#include "test/replay/step_file_fixture.h"

#include <thread>

namespace overdrive::test {
namespace {

using namespace torch::nn;

void go_on(const char* name, const SideBySide::Make& make, int steps = 50) {
  FromFile training(make);
  Step loaded = training.save_and_load();
  EXPECT_EQ(training.go_on(loaded, steps), "") << name << "\n" << loaded.describe();
}

MakeOptimizer made(auto options) {
  return [=](Tensors parameters) -> std::shared_ptr<torch::optim::Optimizer> {
    using Options = std::decay_t<decltype(options)>;
    using torch::optim::Adagrad, torch::optim::AdamW, torch::optim::RMSprop, torch::optim::SGD,
        torch::optim::Adam;
    if constexpr (std::is_same_v<Options, torch::optim::SGDOptions>)
      return std::make_shared<SGD>(parameters, options);
    if constexpr (std::is_same_v<Options, torch::optim::AdamOptions>)
      return std::make_shared<Adam>(parameters, options);
    if constexpr (std::is_same_v<Options, torch::optim::AdamWOptions>)
      return std::make_shared<AdamW>(parameters, options);
    if constexpr (std::is_same_v<Options, torch::optim::RMSpropOptions>)
      return std::make_shared<RMSprop>(parameters, options);
    if constexpr (std::is_same_v<Options, torch::optim::AdagradOptions>)
      return std::make_shared<Adagrad>(parameters, options);
  };
}

TEST(StepFile, GoesOnWithEveryOptimizer) {
  using namespace torch::optim;
  go_on("sgd", [] { return small_mlp(); });
  go_on("momentum",
        [] { return small_mlp(made(SGDOptions(0.05).momentum(0.9).weight_decay(0.01).nesterov(true))); });
  go_on("adam", [] { return small_mlp(made(AdamOptions(0.01).weight_decay(0.01).amsgrad(true))); });
  go_on("adamw", [] { return small_mlp(made(AdamWOptions(0.01))); });
  go_on("rmsprop", [] { return small_mlp(made(RMSpropOptions(0.01).momentum(0.5).centered(true))); });
  go_on("adagrad", [] { return small_mlp(made(AdagradOptions(0.05).lr_decay(0.1))); });
  go_on("gradients that stay", [] { return small_mlp(adam(), /*set_to_none=*/false); });
}

Tensors classes(int i) {
  Tensors batch = batch_of(i, {4, 1, 8, 8}, {4});
  batch[1] = (torch::arange(4) + i) % 3;
  return batch;
}

Training convolutions() {
  Sequential net(Conv2d(Conv2dOptions(1, 4, 3).padding(1)), BatchNorm2d(4), ReLU(), MaxPool2d(2), Dropout(0.2),
                 Conv2d(4, 6, 3), GELU(), AvgPool2d(2), Flatten(), Linear(6, 3));
  return with_loss(
      net.ptr(),
      [net](const Tensors& given) mutable {
        return torch::cross_entropy_loss(net->forward(given[0]), given[1]);
      },
      classes);
}

TEST(StepFile, GoesOnWithConvolutionsStatisticsAndDropout) { go_on("convolutions", convolutions); }

struct WordsImpl : Module {
  Embedding words{12, 8};
  GRU gru{GRUOptions(8, 8).batch_first(true)};
  WordsImpl() {
    register_module("words", words);
    register_module("gru", gru);
  }
};
TORCH_MODULE(Words);

TEST(StepFile, GoesOnWithARecurrentNet) {
  go_on("gru", [] {
    Words net;
    return with_loss(
        net.ptr(),
        [net](const Tensors& given) mutable {
          return std::get<0>(net->gru->forward(net->words->forward(given[0]))).square().mean();
        },
        [](int i) {
          return Tensors{(torch::arange(12).reshape({3, 4}) + i) % 12};
        });
  });
}

TEST(StepFile, GoesOnWithRecurrentLayersOfOneDnn) {
  const auto of = [](const LSTMOptions& options, at::ScalarType type) {
    return [options, type] {
      LSTM net(options);
      net->to(type);
      return with_loss(
          net.ptr(),
          [net](const Tensors& given) mutable {
            const auto [out, states] = net->forward(given[0]);
            return out.square().mean() + std::get<1>(states).mean();
          },
          [type](int i) {
            return Tensors{batch_of(i, {5, 4, 6}, {1})[0].to(type)};
          });
    };
  };
  go_on("one layer", of(LSTMOptions(6, 8), at::kFloat));
  go_on("two layers in both directions",
        of(LSTMOptions(6, 8).num_layers(2).bidirectional(true).batch_first(true).dropout(0.3), at::kFloat));
  go_on("without biases", of(LSTMOptions(6, 8).bias(false), at::kFloat));
  go_on("doubles", of(LSTMOptions(6, 8), at::kDouble));
  go_on("a projection", of(LSTMOptions(6, 8).proj_size(3), at::kFloat));
}

TEST(StepFile, GoesOnWithATransformer) {
  go_on("transformer", [] {
    TransformerEncoderLayer net(TransformerEncoderLayerOptions(16, 2).dim_feedforward(32).dropout(0.1));
    return with_loss(
        net.ptr(),
        [net](const Tensors& given) mutable { return torch::mse_loss(net->forward(given[0]), given[1]); },
        [](int i) {
          return batch_of(i, {6, 2, 16}, {6, 2, 16});
        });
  });
  go_on("scaled dot product", [] {
    Linear net(8, 24);
    return with_loss(
        net.ptr(),
        [net](const Tensors& given) mutable {
          const auto parts = net->forward(given[0]).reshape({2, 5, 3, 2, 4}).permute({2, 0, 3, 1, 4}).unbind(0);
          return at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true).square().mean();
        },
        [](int i) {
          return batch_of(i, {2, 5, 8}, {1});
        });
  });
}

TEST(StepFile, GoesOnWithDerivativesInTheLoss) {
  go_on("pinn", [] {
    Sequential net(Linear(2, 16), Tanh(), Linear(16, 16), Tanh(), Linear(16, 1));
    return with_loss(
        net.ptr(),
        [net](const Tensors& given) mutable {
          const at::Tensor x = given[0].detach().requires_grad_();
          const at::Tensor u = net->forward(x);
          const at::Tensor du = torch::autograd::grad({u.sum()}, {x}, {}, true, true)[0];
          const at::Tensor ux = du.select(1, 0), ut = du.select(1, 1);
          const at::Tensor uxx = torch::autograd::grad({ux.sum()}, {x}, {}, true, true)[0].select(1, 0);
          return (ut + u.squeeze(1) * ux - 0.01 * uxx).square().mean();
        },
        [](int i) {
          return batch_of(i, {20, 2}, {1});
        });
  });
}

TEST(StepFile, GoesOnWithSeveralOptimizers) {
  std::vector<std::shared_ptr<torch::optim::Optimizer>> kept;
  FromFile training(
      [&] {
        Sequential net(Linear(8, 16), Tanh(), Linear(16, 4));
        const Tensors all = net->parameters();
        Training made;
        made.model = net.ptr();
        kept.push_back(adam()({all[0], all[1]}));
        kept.push_back(sgd()({all[2], all[3]}));
        made.step = [net, first = kept[kept.size() - 2].get(),
                     second = kept.back().get()](const Tensors& given) mutable {
          net->zero_grad();
          at::Tensor loss = torch::mse_loss(net->forward(given[0]), given[1]);
          loss.backward();
          second->step();
          first->step();
          return loss;
        };
        made.inputs = [](int i) { return batch_of(i, {5, 8}, {5, 4}); };
        return made;
      },
      [&](CaptureOptions& options) {
        options.optimizers = {kept[2].get(), kept[3].get()};
      });
  Step loaded = training.save_and_load();
  EXPECT_EQ(loaded.optimizer_numbers().at("0.lr"), 0.01);
  EXPECT_EQ(loaded.optimizer_numbers().at("1.lr"), 0.1);
  EXPECT_EQ(training.go_on(loaded, 30), "");
}

TEST(StepFile, HasTheNamesOfTheModuleAndOfTheOptimizersState) {
  FromFile training([] { return small_mlp(adam()); });
  const Step loaded = training.save_and_load();
  std::set<std::string> names;
  for (const auto& [name, tensor] : loaded.named_tensors()) names.insert(name);
  EXPECT_THAT(names, testing::IsSupersetOf({"0.weight", "0.bias", "4.weight", "optimizer.exp_avg.0.weight",
                                            "optimizer.exp_avg_sq.4.bias", "0.weight.grad"}));
  EXPECT_EQ(loaded.parameters().size(), 6u);
  EXPECT_EQ(loaded.functions(), std::vector<std::string>{"step"});
  const std::string text = loaded.describe();
  EXPECT_THAT(text, testing::HasSubstr("0.weight Float[16, 8], a parameter"));
  EXPECT_THAT(text, testing::HasSubstr("Float[5, 8], Float[5, 4]"));
  EXPECT_THAT(text, testing::HasSubstr("proved by a call"));
}

TEST(StepFile, FollowsALearningRateThatIsChanged) {
  FromFile training([] { return small_mlp(adam()); });
  Step loaded = training.save_and_load();
  EXPECT_EQ(loaded.optimizer_numbers().at("0.lr"), 0.01);
  for (const double rate : {0.02, 0.001}) {
    loaded.set_learning_rate(rate);
    EXPECT_EQ(loaded.optimizer_numbers().at("0.lr"), rate);
    static_cast<torch::optim::AdamOptions&>(training.eager.optimizer->param_groups()[0].options()).lr(rate);
    EXPECT_EQ(training.go_on(loaded, 5), "");
  }
  EXPECT_THAT(error_of([&] { loaded.set_optimizer_number("1.lr", 1); }),
              testing::HasSubstr("no optimizer's number"));
}

TEST(StepFile, RefusesANumberThatAsksForOtherOperators) {
  FromFile training([] { return small_mlp(sgd()); });
  Step loaded = training.save_and_load();
  EXPECT_THAT(error_of([&] { loaded.set_optimizer_number("0.weight_decay", 0.1); }),
              testing::HasSubstr("asks for other operators"));
  EXPECT_EQ(training.go_on(loaded, 5), "");
}

TEST(StepFile, CarriesItsStateToAnotherCopyOfItself) {
  FromFile training([] { return small_mlp(adam()); });
  Step first = training.save_and_load();
  EXPECT_EQ(training.go_on(first, 10), "");
  first.set_learning_rate(0.02);
  static_cast<torch::optim::AdamOptions&>(training.eager.optimizer->param_groups()[0].options()).lr(0.02);
  const FilePath state("state.pt");
  first.save_state(state);
  Step second = load_step(training.path);
  const LoadedState loaded = second.load_state(state);
  EXPECT_TRUE(loaded.missing.empty() && loaded.unexpected.empty());
  EXPECT_EQ(training.go_on(second, 10), "");
  // From the step file itself: as it was when it was saved.
  second.load_state(training.path);
  EXPECT_EQ(second.optimizer_numbers().at("0.lr"), 0.01);
  Sequential model(Linear(8, 16), Tanh(), Linear(16, 16), ReLU(), Linear(16, 4));
  second.to_module_state(*model);
  EXPECT_TRUE(same_bits(model->parameters()[0], second.parameters()[0]));
}

TEST(StepFile, HoldsAProgramForEachSetOfSizes) {
  const auto make = [] {
    Training training = small_mlp(adam());
    training.inputs = [](int i) {
      return i % 2 == 0 ? batch_of(i, {5, 8}, {5, 4}) : batch_of(i, {3, 8}, {3, 4});
    };
    return training;
  };
  FromFile training(make);
  for (; training.steps < 16; ++training.steps) {
    training.step->call(training.captured.inputs(training.steps));
    training.eager.step(training.eager.inputs(training.steps));
  }
  Step loaded = training.save_and_load();
  EXPECT_EQ(training.go_on(loaded, 20), "");
  EXPECT_THAT(
      error_of([&] {
        loaded(batch_of(0, {4, 8}, {4, 4}));
      }),
      testing::AllOf(
          testing::HasSubstr("called with Float[4, 8], Float[4, 4], and function step has programs for: "),
          testing::HasSubstr("Float[5, 8], Float[5, 4]"), testing::HasSubstr("Float[3, 8], Float[3, 4]")));
}

TEST(StepFile, SharesTensorsBetweenFunctions) {
  FromFile training([] { return small_mlp(adam()); });
  Sequential net(std::dynamic_pointer_cast<SequentialImpl>(training.captured.model));
  Sequential twin(std::dynamic_pointer_cast<SequentialImpl>(training.eager.model));
  CapturedStep predict(
      [&](const Tensors& inputs) {
        const at::NoGradGuard no_grad;
        return Tensors{net->forward(inputs[0])};
      },
      {.modules = {net.ptr()}});
  for (int i = 0; i < 8; ++i) predict.call(batch_of(i, {2, 8}, {1}) = {batch_of(i, {2, 8}, {1})[0]});
  save_steps(training.path, {{"train", training.step.get()}, {"predict", &predict}});
  Step loaded = load_step(training.path);
  EXPECT_EQ(loaded.functions(), (std::vector<std::string>{"train", "predict"}));
  EXPECT_EQ(loaded.parameters().size(), 6u);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(training.go_on(loaded, 1), "");
    const at::Tensor x = batch_of(100 + i, {2, 8}, {1})[0];
    EXPECT_TRUE(same_bits(loaded.call("predict", {x}).at(0), twin->forward(x)));
  }
  EXPECT_THAT(error_of([&] { loaded.call("test", {}); }),
              testing::HasSubstr("no function test; it has train, predict"));
}

TEST(StepFile, WithoutValuesHasNamesAndSignatures) {
  FromFile training(convolutions);
  training.step->save(training.path, {.values = false});
  EXPECT_LT(read_file(training.path).size(), size_t{64} << 10);
  Step loaded = load_step(training.path);
  EXPECT_THAT(loaded.describe(), testing::HasSubstr("without values"));
  // Values come from elsewhere: here from the whole file.
  const FilePath whole;
  training.step->save(whole);
  EXPECT_TRUE(loaded.load_state(whole).missing.empty());
  EXPECT_EQ(training.go_on(loaded, 10), "");
}

TEST(StepFile, TakesInputsThatLieElsewhere) {
  FromFile training([] { return small_mlp(); });
  Step loaded = training.save_and_load();
  Step other = load_step(training.path);
  const Tensors inputs = batch_of(30, {5, 8}, {5, 4});
  const at::Tensor wide = at::zeros({5, 9}), turned = inputs[0].t().contiguous().t();
  wide.slice(1, 1).copy_(inputs[0]);
  const at::Tensor expected = loaded(inputs).at(0);
  EXPECT_TRUE(same_bits(other({wide.slice(1, 1), inputs[1]}).at(0), expected));
  other.load_state(training.path);
  EXPECT_TRUE(same_bits(other({turned, inputs[1]}).at(0), expected));
}

TEST(StepFile, RefusesAnInputThatItChanges) {
  FromFile training([] { return small_mlp(); });
  Step loaded = training.save_and_load();
  std::map<std::string, at::Tensor> named;
  for (const auto& [name, tensor] : loaded.named_tensors()) named[name] = tensor;
  const at::Tensor own = named.at("0.weight").view({-1}).slice(0, 0, 40).view({5, 8});
  EXPECT_THAT(error_of([&] {
                loaded({own, at::zeros({5, 4})});
              }),
              testing::HasSubstr("an input shares memory with a tensor that the step changes"));
}

// Two tanh() of one tensor, and a sum that nobody reads.
TEST(StepFile, LeavesOutWhatTheCaptureLeavesOut) {
  FromFile training([] {
    Linear net(8, 4);
    return with_loss(
        net.ptr(),
        [net](const Tensors& given) mutable {
          const at::Tensor made = net->forward(given[0]);
          (void)made.detach().exp().sum();
          return (torch::tanh(made) * torch::tanh(made)).mean();
        },
        [](int i) {
          return batch_of(i, {5, 8}, {1});
        });
  });
  Step loaded = training.save_and_load();
  EXPECT_THAT(loaded.describe(), testing::ContainsRegex(" [1-9][0-9]* of them left out"));
  EXPECT_EQ(training.go_on(loaded, 20), "");
}

// m = m / 2 + x; w = w - m; the sum of w * x. It was written when that was the newest version, and is read by
// all that follow.
TEST(StepFile, ReadsAFileOfTheFirstVersion) {
  Step step = load_step(OVERDRIVE_STEP_FILES "/version_1.od", {.accept_other_bits = true});
  EXPECT_EQ(step.functions(), std::vector<std::string>{"step"});
  EXPECT_EQ(step(Tensors{at::tensor({1.0F, 0.0F, 2.0F, 0.0F})}).at(0).item<float>(), 2);
  std::map<std::string, at::Tensor> named;
  for (const auto& [name, tensor] : step.named_tensors()) named[name] = tensor;
  EXPECT_TRUE(torch::equal(named.at("m"), at::tensor({1.0F, 0.0F, 2.0F, 0.0F})));
  EXPECT_TRUE(torch::equal(named.at("w"), at::tensor({0.0F, 2.0F, 1.0F, 4.0F})));
}

// The same step, and what came with the second version.
TEST(StepFile, ReadsAFileOfTheSecondVersion) {
  Step step = load_step(OVERDRIVE_STEP_FILES "/version_2.od", {.accept_other_bits = true});
  EXPECT_EQ(step(Tensors{at::tensor({1.0F, 0.0F, 2.0F, 0.0F})}).at(0).item<float>(), 2);
  EXPECT_GT(step.recorded_eager_cost("step").at(0).seconds, 0);
  Step first = load_step(OVERDRIVE_STEP_FILES "/version_1.od", {.accept_other_bits = true});
  EXPECT_EQ(first.recorded_eager_cost("step").at(0).calls, 0);
}

// A call of the function takes 20 ms more than its operators, which no replay waits for.
TEST(StepFile, HasWhatAnEagerCallTook) {
  const auto slow_mlp = [] {
    Training slow = small_mlp();
    slow.step = [step = slow.step](const Tensors& given) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return step(given);
    };
    return slow;
  };
  for (const size_t eager_calls : {1, 3}) {
    FromFile training(slow_mlp, [&](CaptureOptions& options) { options.eager_calls = eager_calls; });
    EXPECT_EQ(training.step->stats().eager, eager_calls);
    for (const bool values : {true, false}) {
      training.step->save(training.path, {.values = values});
      const Step loaded = load_step(training.path);
      const EagerCost cost = loaded.recorded_eager_cost("step").at(0);
      EXPECT_EQ(cost.calls, eager_calls);
      EXPECT_GE(cost.seconds, 0.02);
      EXPECT_EQ(loaded.recorded_seconds("step").at(0) > 0, values);
      EXPECT_GT(loaded.operator_counts("step").at(0), 10);
    }
  }
}

// `second` lies in the memory of `first`, which alone has a name.
TEST(StepFile, HasAStateOfElementsWithoutAName) {
  const at::Tensor whole = at::zeros({8}), first = whole.narrow(0, 0, 4), second = whole.narrow(0, 4, 4);
  CapturedStep step = capture(
      [&](const Tensors& inputs) {
        first.add_(inputs[0]);
        second.mul_(0.5).add_(inputs[0]);
        return Tensors{(first * second).sum()};
      },
      {.constant_numbers = true});
  for (int i = 0; i < 8; ++i) step.call({torch::randn({4})});
  const FilePath path, state("state.pt");
  step.save(path, {.names = {{"first", first}}});
  Step loaded = load_step(path), other = load_step(path);
  loaded({at::ones({4})});
  loaded.save_state(state);
  other.load_state(state);
  EXPECT_TRUE(same_bits(loaded({at::ones({4})}).at(0), other({at::ones({4})}).at(0)));
}

TEST(StepFile, NeedsAnEagerCallFirst) {
  EXPECT_THAT(error_of([] { capture([](const Tensors& inputs) { return inputs; }, {.eager_calls = 0}); }),
              testing::HasSubstr(".eager_calls is 0"));
}

TEST(StepFile, RefusesOtherSettings) {
  FromFile training([] { return small_mlp(); });
  training.step->save(training.path);
  at::globalContext().setFlushDenormal(true);
  const std::string error = error_of([&] { load_step(training.path); });
  at::globalContext().setFlushDenormal(false);
  EXPECT_THAT(error, testing::HasSubstr("written under other settings"));
}

TEST(StepFile, LeavesEverythingAsItWasWhenAnOperatorThrows) {
  FromFile training(convolutions);
  Step loaded = training.save_and_load();
  Tensors wrong = training.captured.inputs(training.steps);
  wrong[1] = torch::full({4}, 7, at::kLong);
  EXPECT_THAT(error_of([&] { loaded(wrong); }), testing::HasSubstr("Target 7 is out of bounds"));
  EXPECT_EQ(training.go_on(loaded, 5), "");
}

TEST(StepFile, IsNotWrittenBeforeItReplays) {
  Training training = small_mlp();
  CapturedStep step([&](const Tensors& inputs) { return Tensors{training.step(inputs)}; },
                    {.optimizer = training.optimizer.get(), .modules = {training.model}});
  const FilePath path;
  EXPECT_THAT(error_of([&] { step.save(path); }), testing::HasSubstr("no call of it is replayed yet"));
  for (int i = 0; i < 6; ++i) step.call({batch_of(0, {5, 8}, {5, 4})[0], batch_of(i, {5, 8}, {5, 4})[1]});
  EXPECT_THAT(error_of([&] { step.save(path); }),
              testing::HasSubstr("input 0 had the same values in all calls"));
  EXPECT_FALSE(std::filesystem::exists(std::string(path)));
}

}  // namespace
}  // namespace overdrive::test
