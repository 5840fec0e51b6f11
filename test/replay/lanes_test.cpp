// Captured steps on several lanes: the bits of one thread, whatever the order of arrival. Most tests ask for
// more lanes than there are processors, and for steps that would not be worth it.
#include "replay/lanes/lane_trial.h"
#include "replay/optimizers/python_optimizers.h"
#include "test/replay/replay_fixture.h"
#include "test/support/child.h"
#include "test/support/number_of_environment.h"
#include "test/support/sanitized.h"

#include <ATen/record_function.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <thread>

namespace overdrive::test {
namespace {

using testing::HasSubstr;
using testing::Not;

// Nets that do not know each other, and a loss that is the sum of theirs.
Training ensemble(int nets, int width, double dropout = 0) {
  using namespace torch::nn;
  std::vector<Sequential> all;
  ModuleList list;
  for (int i = 0; i < nets; ++i) {
    all.push_back(Sequential(Linear(width, width), Tanh(), Dropout(dropout), Linear(width, width), ReLU(),
                             Linear(width, 1)));
    list->push_back(all.back());
  }
  Training training{.model = list.ptr(), .optimizer = adam()(list->parameters())};
  auto* optimizer = training.optimizer.get();
  training.step = [all, optimizer](const Tensors& inputs) mutable {
    optimizer->zero_grad();
    at::Tensor loss = torch::zeros({});
    for (Sequential& net : all) loss = loss + torch::mse_loss(net->forward(inputs[0]), inputs[1]);
    loss.backward();
    optimizer->step();
    return loss;
  };
  training.inputs = [=](int i) { return batch_of(i, {4, width}, {4, 1}); };
  return training;
}

class CaptureLanes : public testing::Test {
 protected:
  void SetUp() override { at::set_num_threads(1); }
  void TearDown() override {
    replay::try_lanes({});
    at::set_num_threads(threads_);
  }

 private:
  const int threads_ = at::get_num_threads();
};

TEST_F(CaptureLanes, HaveTheBitsOfOneThread) {
  for (const int lanes : {2, 3, 4}) {
    for (uint64_t seed = 0; seed < 2; ++seed) {
      replay::try_lanes({.cores = 4, .always = true, .seed = seed, .longest_delay = seed % 2 ? 10 : 0});
      SideBySide both([] { return ensemble(3, 16); }, {.lanes = lanes});
      EXPECT_EQ(both.run(12), "") << lanes << " lanes, seed " << seed;
      EXPECT_EQ(replays(both.step().stats()), 8U);
      EXPECT_THAT(both.step().explain(), HasSubstr(c10::str("\nlanes: ", lanes, ";")));
    }
  }
}

// What can be divided, on tensors that are larger than a share: whole vectors, a rest, rows, numbers that
// change.
Tensors divisible_steps(const Tensors& in) {
  const at::Tensor &a = in[0], &b = in[1], row = b.select(0, 0);
  Tensors made{a.tanh(),
               a.sigmoid(),
               a.exp(),
               a.abs().log(),
               a.sin(),
               a.cos(),
               a.abs().sqrt(),
               a.neg(),
               a.abs().rsqrt(),
               torch::silu(a),
               a.reciprocal(),
               a * b,
               a / b,
               a.maximum(b),
               a.minimum(b),
               a + b,
               a - 0.3 * b,
               a * 0.7,
               a / 3,
               a + 2,
               a.relu(),
               a.pow(2),
               a.pow(0.37),
               a.pow(1),
               torch::leaky_relu(a, 0.1),
               a + row,
               a * row,
               a.clone(),
               torch::zeros_like(a) + a,
               a.t().contiguous(),
               a.t() + b.t(),
               torch::gelu(a)};
  made.push_back(torch::addcmul(a, a, b, 0.4));
  made.push_back(torch::addcdiv(a, a, b, 0.4));
  made.push_back(a.mm(b.t()));
  made.push_back(b.t().mm(a));
  made.push_back(torch::addmm(row, a, b.t().mm(a)));
  made.push_back(torch::addmm(row, a, b.t().mm(a).t(), 0.5, 2));
  return made;
}

// Also NaNs of both signs, infinities, and numbers that are next to nothing.
at::Tensor numbers_of_all_kinds(at::IntArrayRef sizes, int seed) {
  at::Tensor numbers = torch::randn(sizes) * std::pow(10., seed % 5 - 2);
  float* each = numbers.data_ptr<float>();
  for (int64_t i = seed; i < numbers.numel() && seed % 3 == 0; i += 97) {
    const float special[]{NAN, -NAN, INFINITY, -INFINITY, 0.F, -0.F, 1e-41F, -3e38F};
    each[i] = special[i % 8];
  }
  return numbers;
}

TEST_F(CaptureLanes, HaveTheBitsOfOneThreadWhereStepsAreDivided) {
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{{67, 33}, {128, 48}, {5, 301}}) {
    for (const int shares : {2, 3, 5}) {
      replay::try_lanes(
          {.cores = 4, .always = true, .seed = 3, .shares = shares, .longest_delay = shares == 3 ? 5 : 0});
      SideBySide both(
          [=] {
            Training training;
            training.inputs = [=](int i) {
              return Tensors{numbers_of_all_kinds(sizes, 2 * i), numbers_of_all_kinds(sizes, 2 * i + 1)};
            };
            for (const at::Tensor& made : divisible_steps(training.inputs(0)))
              training.state.push_back(torch::zeros_like(made));
            training.step = [kept = training.state](const Tensors& inputs) {
              const torch::NoGradGuard no_grad;
              const Tensors made = divisible_steps(inputs);
              for (size_t i = 0; i < made.size(); ++i) at::Tensor(kept[i]).copy_(made[i]);
              return made[0].sum();
            };
            return training;
          },
          {.constant_numbers = true, .lanes = 3});
      EXPECT_EQ(both.run(14), "") << sizes << ", " << shares << " shares";
      EXPECT_GT(replays(both.step().stats()), 5U) << both.step().explain();
      EXPECT_THAT(both.step().explain(), HasSubstr(" steps are divided, into ")) << both.step().explain();
    }
  }
}

// Numbers of an optimizer change between calls, and each share sees them.
TEST_F(CaptureLanes, SharesSeeTheNumbersOfTheCall) {
  replay::try_lanes({.cores = 3, .always = true, .seed = 4, .shares = 3, .longest_delay = 5});
  SideBySide both([] { return ensemble(2, 32); }, {.lanes = 3});
  EXPECT_EQ(both.run(20,
                     [](Training& training, int i) {
                       for (auto& group : training.optimizer->param_groups())
                         group.options().set_lr(0.1 / (1 + i));
                     }),
            "");
  EXPECT_GT(replays(both.step().stats()), 10U);
  EXPECT_THAT(both.step().explain(), HasSubstr(" steps are divided, into "));
}

// Python's Adam is one operator for all parameters. Two of the copies before it are large enough, too.
void adam_of_python(const std::vector<Tensors>& lists, const at::Tensor& numbers) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("overdrive::adam_", "");
  c10::Stack stack;
  for (const Tensors& list : lists) stack.emplace_back(list);
  stack.emplace_back(numbers);
  op.callBoxed(&stack);
}

TEST_F(CaptureLanes, ShareTheParametersOfAnUpdate) {
  replay::define_python_optimizers();
  for (const bool amsgrad : {false, true}) {
    replay::try_lanes({.cores = 3, .always = true, .seed = 6, .shares = 3, .longest_delay = 5});
    SideBySide both(
        [=] {
          Training training;
          std::vector<Tensors> lists(6);
          for (const int64_t size : {300, 5, 40, 1, 200, 17, 64}) {
            lists[0].push_back(torch::randn({size}));
            for (size_t i = 1; i < 5; ++i) lists[i].push_back(torch::zeros({size}));
            lists[5].push_back(torch::zeros({}));
          }
          if (!amsgrad) lists[4].clear();
          for (const Tensors& list : lists)
            training.state.insert(training.state.end(), list.begin(), list.end());
          const at::Tensor numbers = torch::tensor({0.01, 0.9, 0.99, 1e-8, 0.1, 1.}, at::kDouble);
          training.step = [lists, numbers](const Tensors& inputs) {
            const torch::NoGradGuard no_grad;
            for (const at::Tensor& gradient : lists[1])
              at::Tensor(gradient).copy_(inputs[0].narrow(0, 0, gradient.numel()));
            adam_of_python(lists, numbers);
            return lists[0][0].sum();
          };
          training.inputs = [](int i) { return batch_of(i, {300}, {1}); };
          return training;
        },
        {.constant_numbers = true, .lanes = 3});
    EXPECT_EQ(both.run(14), "");
    EXPECT_GT(replays(both.step().stats()), 8U) << both.step().explain();
    EXPECT_THAT(both.step().explain(), HasSubstr("; 3 steps are divided, into 9 shares"));
  }
}

TEST_F(CaptureLanes, SmallStepsStayWhole) {
  replay::try_lanes({.cores = 2});
  SideBySide both([] { return ensemble(2, 8); }, {.lanes = 2});
  EXPECT_EQ(both.run(30), "");
  // A sanitizer makes a small step take as long as a large one.
  if (sanitized()) return;
  EXPECT_THAT(both.step().explain(), Not(HasSubstr("are divided")));
}

TEST_F(CaptureLanes, AreNotThereUnlessAskedFor) {
  replay::try_lanes({.cores = 4, .always = true});
  SideBySide both([] { return ensemble(2, 8); });
  EXPECT_EQ(both.run(6), "");
  EXPECT_THAT(both.step().explain(), Not(HasSubstr("lanes:")));
}

TEST_F(CaptureLanes, DrawTheirRandomNumbersInOrder) {
  replay::try_lanes({.cores = 3, .always = true, .seed = 5, .longest_delay = 10});
  SideBySide both([] { return ensemble(3, 16, 0.3); }, {.lanes = 3});
  EXPECT_EQ(both.run(16), "");
  EXPECT_GE(replays(both.step().stats()), 10U);
}

// Measured, not made up: whatever the machine is, the step runs and says how.
TEST_F(CaptureLanes, AreTimedAndTriedAndThenDecidedOn) {
  replay::try_lanes({.cores = 2});
  SideBySide both([] { return ensemble(4, 32); }, {.lanes = kAutoLanes});
  EXPECT_EQ(both.run(6), "");
  EXPECT_THAT(both.step().explain(), HasSubstr("lanes: 1, while the steps are timed"));
  EXPECT_EQ(both.run(30), "");
  EXPECT_THAT(both.step().explain(), HasSubstr("us of work (gain "));
}

TEST_F(CaptureLanes, AChainOfSmallOperatorsStaysOnOne) {
  replay::try_lanes({.cores = 2});
  SideBySide both(
      [] {
        Training training;
        const at::Tensor kept = torch::ones({8, 8});
        training.state = {kept};
        training.step = [kept](const Tensors& inputs) {
          const torch::NoGradGuard no_grad;
          at::Tensor x = inputs[0];
          for (int i = 0; i < 10; ++i) x = torch::tanh(x.mm(kept) * 0.01);
          at::Tensor(kept).copy_(x);
          return x.sum();
        };
        training.inputs = [](int i) { return batch_of(i, {8, 8}, {1}); };
        return training;
      },
      {.constant_numbers = true, .lanes = 2});
  EXPECT_EQ(both.run(12), "");
  EXPECT_THAT(both.step().explain(), HasSubstr("lanes: 1, because lanes would bring less than a tenth"));
}

// Two chains, each with an index out of range in some calls; what was written before is put back.
TEST_F(CaptureLanes, AThrowTakesTheReplayBack) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    replay::try_lanes({.cores = 3, .always = true, .seed = seed, .longest_delay = 10});
    SideBySide both(
        [] {
          Training training;
          const Tensors kept{torch::ones({8, 8}), torch::ones({8, 8}), torch::ones({8, 8})};
          training.state = kept;
          training.step = [kept](const Tensors& inputs) {
            const torch::NoGradGuard no_grad;
            for (size_t i = 0; i < kept.size(); ++i) {
              at::Tensor(kept[i]).mul_(0.9).add_(inputs[0].tanh().mm(kept[i]), 0.1);
              at::Tensor(kept[i]).copy_(kept[i].index_select(0, inputs[1 + i % 2]).sin());
            }
            return kept[0].sum() + kept[1].sum();
          };
          training.inputs = [](int i) {
            Tensors inputs = batch_of(i, {8, 8}, {1});
            inputs[1] = (torch::arange(8) + i) % 8 + (i % 7 == 6 ? 8 : 0);
            inputs.push_back((torch::arange(8) * 3 + i) % 8 - (i % 5 == 4 ? 100 : 0));
            return inputs;
          };
          return training;
        },
        {.constant_numbers = true, .lanes = 3});
    EXPECT_EQ(both.run(30), "") << "seed " << seed << both.step().explain();
    EXPECT_GT(both.step().stats().undone, 3U) << both.step().explain();
    EXPECT_GT(replays(both.step().stats()), 10U);
  }
}

// The answer of the first question in the program's order takes the replay back, also when another one came
// first.
TEST_F(CaptureLanes, AnotherAnswerTakesTheReplayBack) {
  replay::try_lanes({.cores = 2, .always = true, .seed = 3, .longest_delay = 10});
  SideBySide both(
      [] {
        Training training;
        const at::Tensor kept = torch::ones({8, 8});
        training.state = {kept};
        training.step = [kept](const Tensors& inputs) {
          const torch::NoGradGuard no_grad;
          at::Tensor(kept).mul_(0.9);
          at::Tensor a = inputs[0].sin(), b = inputs[0].cos();
          if ((inputs[1].sum() > 3).item<bool>()) a = a + 1;
          if ((b.sum() > 1e6).item<bool>()) b = b + 1;
          at::Tensor(kept).add_(a.mm(b));
          return kept.sum();
        };
        training.inputs = [](int i) {
          return Tensors{torch::rand({8, 8}), torch::full({2}, i % 6 == 5 ? 4 : 0.01 * i)};
        };
        return training;
      },
      {.constant_numbers = true, .lanes = 2});
  EXPECT_EQ(both.run(30), "") << both.step().explain();
  EXPECT_GT(both.step().stats().undone, 1U) << both.step().explain();
}

TEST_F(CaptureLanes, AStepThatWasRecordedWithThreadsKeepsThem) {
  at::set_num_threads(2);
  replay::try_lanes({.cores = 2, .always = true});
  SideBySide both([] { return ensemble(2, 8); }, {.lanes = 2});
  EXPECT_EQ(both.run(6), "");
  EXPECT_THAT(both.step().explain(), HasSubstr("recorded with several threads inside an operator"));
}

TEST_F(CaptureLanes, AProfilerSeesEveryOperatorOnTheCallersThread) {
  replay::try_lanes({.cores = 2, .always = true});
  SideBySide both([] { return ensemble(2, 8); }, {.lanes = 2});
  EXPECT_EQ(both.run(8), "");
  static std::set<std::thread::id> threads;
  static int seen = 0;
  const auto handle = at::addGlobalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& fn) -> std::unique_ptr<at::ObserverContext> {
        ++seen;
        threads.insert(std::this_thread::get_id());
        return nullptr;
      }).scopes({at::RecordScope::FUNCTION}));
  both.step().call(both.captured().inputs(8));
  at::removeCallback(handle);
  EXPECT_EQ(threads, std::set{std::this_thread::get_id()});
  EXPECT_GT(seen, 20);
}

TEST_F(CaptureLanes, ComputeInTheModesOfTheCaller) {
  replay::try_lanes({.cores = 2, .always = true, .seed = 2});
  for (const bool flush : {true, false}) {
    if (!at::globalContext().setFlushDenormal(flush)) GTEST_SKIP() << "no such mode on this processor";
    SideBySide both(
        [] {
          Training training;
          const Tensors kept{torch::full({64}, 1e-37F), torch::full({64}, 1e-37F), torch::full({64}, 1e-37F)};
          training.state = kept;
          training.step = [kept](const Tensors& inputs) {
            const torch::NoGradGuard no_grad;
            at::Tensor sum = inputs[0].sum() * 0;
            for (const at::Tensor& each : kept) {
              at::Tensor(each).mul_(0.5);
              sum = sum + each.sum();
            }
            return sum;
          };
          training.inputs = [](int i) { return batch_of(i, {4}, {1}); };
          return training;
        },
        {.constant_numbers = true, .lanes = 2});
    EXPECT_EQ(both.run(20), "");
    EXPECT_EQ((both.captured().state[2] == 0).all().item<bool>(), flush);
  }
  at::globalContext().setFlushDenormal(false);
}

TEST_F(CaptureLanes, TwoThreadsShareTheProcessors) {
  replay::try_lanes({.cores = 3, .always = true, .seed = 9});
  std::vector<std::string> differences(3);
  std::vector<std::thread> threads;
  // The fixture sets the generator of the process around each call, and the steps draw nothing from it.
  static std::mutex generator;
  for (std::string& difference : differences) {
    threads.emplace_back([&difference] {
      at::set_num_threads(1);
      std::unique_lock lock(generator);
      Training eager = ensemble(3, 16), captured = ensemble(3, 16);
      {
        const torch::NoGradGuard no_grad;
        const Tensors a = eager.everything(), b = captured.everything();
        for (size_t i = 0; i < a.size(); ++i) b[i].copy_(a[i]);
      }
      lock.unlock();
      CapturedStep step([&](const Tensors& inputs) { return Tensors{captured.step(inputs)}; },
                        {.optimizer = captured.optimizer.get(), .modules = {captured.model}, .lanes = 2});
      for (int i = 0; i < 40 && difference.empty(); ++i) {
        const at::Tensor expected = eager.step(eager.inputs(i)), result = step.call(captured.inputs(i)).at(0);
        if (!same_bits(expected.detach(), result)) difference = c10::str("call ", i);
      }
      if (replays(step.stats()) < 30) difference = step.explain();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(differences, std::vector<std::string>(3));
}

TEST_F(CaptureLanes, AChildOfForkHasOne) {
  OVERDRIVE_NEEDS_CHILDREN_THAT_TRAIN();
  replay::try_lanes({.cores = 2, .always = true});
  SideBySide both([] { return ensemble(2, 8); }, {.lanes = 2});
  ASSERT_EQ(both.run(8), "");
  EXPECT_TRUE(holds_in_a_child([&] { return both.run(8).empty() && replays(both.step().stats()) == 12; }));
  EXPECT_EQ(both.run(4), "");
}

// The number behind the words in the line of lanes.
double number_in(const std::string& text, const std::string& words) {
  const size_t at = text.find(words);
  return at == std::string::npos ? 0 : std::strtod(text.c_str() + at + words.size(), nullptr);
}

// Tensors of one net lie where those of another were only if these are long dead: else the nets would wait for
// each other.
TEST_F(CaptureLanes, NetsThatDoNotKnowEachOtherDoNotShareMemory) {
  replay::try_lanes({.cores = 2, .always = true});
  SideBySide both([] { return ensemble(8, 32); }, {.lanes = 2});
  EXPECT_EQ(both.run(8), "");
  const std::string text = both.step().explain();
  EXPECT_GT(number_in(text, "us expected for "), 5 * number_in(text, "longest way ")) << text;
}

// A page and its data tell of every operator on each number of lanes, whatever the machine is.
TEST_F(CaptureLanes, AreDrawnAsTheyRanAndForMoreLanesThanThereAre) {
  replay::try_lanes({.cores = 2, .always = true});
  SideBySide both([] { return ensemble(3, 16); }, {.lanes = 2});
  EXPECT_THAT(both.step().lanes_json(), "[]");
  EXPECT_EQ(both.run(4), "");
  EXPECT_THAT(both.step().lanes_json(), Not(HasSubstr("\"seen\"")));
  EXPECT_EQ(both.run(8), "");
  const std::string json = both.step().lanes_json(), page = both.step().lanes_page("nets </script>");
  for (const char* kind : {"seen", "foretold", "simulated"})
    EXPECT_THAT(json, HasSubstr(c10::str("\"kind\": \"", kind, "\"")));
  EXPECT_THAT(json, HasSubstr("\"inputs\": [\"Float[4, 16]\""));
  EXPECT_THAT(json, HasSubstr("\"told\": \"lanes: 2; "));
  EXPECT_THAT(page, HasSubstr("<title>Overdrive: lanes of nets &lt;/script></title>"));
  EXPECT_EQ(both.run(4), "");
}

TEST_F(CaptureLanes, OneLaneHasNothingToDraw) {
  SideBySide both([] { return ensemble(2, 8); });
  EXPECT_EQ(both.run(6), "");
  EXPECT_THAT(both.step().lanes_json(), HasSubstr("\"lanes\": null}"));
}

// A process with one processor still times its operators, so that lanes are foretold.
TEST_F(CaptureLanes, AreSimulatedWhereThereIsOneProcessor) {
  replay::try_lanes({.cores = 1});
  SideBySide both([] { return ensemble(2, 8); }, {.lanes = 2});
  EXPECT_EQ(both.run(16), "");
  EXPECT_THAT(both.step().explain(), HasSubstr("lanes: 1, because the process has one processor"));
  EXPECT_THAT(both.step().lanes_json(), testing::AllOf(HasSubstr("\"simulated\""), Not(HasSubstr("\"seen\""))));
}

// One model, other lanes and other delays all the time. OVERDRIVE_TEST_SECONDS makes it a soak.
TEST_F(CaptureLanes, GoOnWithTheBitsOfOneThread) {
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::seconds(number_of_environment("OVERDRIVE_TEST_SECONDS", 0));
  uint64_t seed = number_of_environment("OVERDRIVE_TEST_SEED", 1), replayed = 0;
  do {
    const int lanes = 2 + static_cast<int>(seed % 3);
    replay::try_lanes({.cores = 4,
                       .always = true,
                       .seed = seed,
                       .shares = seed % 2 ? lanes : 0,
                       .longest_delay = static_cast<int>(seed % 4 * 10)});
    SideBySide both([] { return ensemble(3, 16, 0.1); }, {.lanes = lanes});
    ASSERT_EQ(both.run(100), "") << lanes << " lanes, seed " << seed << "\n" << both.step().explain();
    ASSERT_GT(replays(both.step().stats()), 90U);
    replayed += replays(both.step().stats());
    ++seed;
  } while (std::chrono::steady_clock::now() < end);
  std::cout << replayed << " replays with the bits of one thread, the next seed is " << seed << "\n";
}

TEST_F(CaptureLanes, TheEnvironmentAsksForThoseThatDoNotSay) {
  replay::try_lanes({.cores = 2, .always = true});
  setenv("OVERDRIVE_CAPTURE_LANES", "2", 1);
  SideBySide both([] { return ensemble(2, 8); });
  EXPECT_EQ(both.run(6), "");
  EXPECT_THAT(both.step().explain(), HasSubstr("\nlanes: 2;"));
  setenv("OVERDRIVE_CAPTURE_LANES", "many", 1);
  SideBySide other([] { return ensemble(2, 8); });
  EXPECT_THAT(error_of([&] { other.step().call(other.captured().inputs(0)); }),
              HasSubstr("OVERDRIVE_CAPTURE_LANES is \"many\""));
  unsetenv("OVERDRIVE_CAPTURE_LANES");
  SideBySide wrong([] { return ensemble(2, 8); }, {.lanes = -1});
  EXPECT_THAT(error_of([&] { wrong.step().call(wrong.captured().inputs(0)); }), HasSubstr("must be 0 or more"));
}

}  // namespace
}  // namespace overdrive::test
