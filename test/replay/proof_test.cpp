// What the proof of a recording has to see: the tensors that the function gets, memory that a replay changes,
// and data that the recorded calls did not have.
#include "test/replay/replay_fixture.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <thread>

namespace overdrive::test {
namespace {

using testing::HasSubstr;
using Function = std::function<at::Tensor(const at::Tensor&)>;

// Calls with other data each time, and compares with the function itself.
void expect_equal_calls(CapturedStep& step, const std::function<Tensors(const Tensors&)>& function,
                        const std::function<Tensors(int)>& inputs, int calls = 12) {
  for (int i = 0; i < calls; ++i) {
    const Tensors expected = function(inputs(i)), results = step.call(inputs(i));
    for (size_t k = 0; k < expected.size(); ++k)
      EXPECT_TRUE(same_bits(results[k], expected[k])) << "call " << i;
  }
}

Tensors square(int i) { return {torch::arange(16, torch::kFloat).reshape({4, 4}).sin() * (i + 1)}; }

// The tensors of the program keep their sizes, whichever tensor an operator turned into a view of itself.
TEST(CaptureProof, TensorsOfTheStepThatBecomeViewsInPlace) {
  for (const Function& function : {Function([](const at::Tensor& x) {
                                     at::Tensor y = x.cumsum(0);
                                     y.t_();
                                     return y * 2;
                                   }),
                                   Function([](const at::Tensor& x) {
                                     at::Tensor y = (x * 10).to(torch::kLong);
                                     y.transpose_(0, 1).unsqueeze_(0).squeeze_();
                                     return y + 1;
                                   }),
                                   Function([](const at::Tensor& x) {
                                     at::Tensor y = (x.detach().requires_grad_() * 2).flip(0);
                                     y.swapaxes_(0, 1);
                                     return y.detach() + 1;
                                   }),
                                   Function([](const at::Tensor& x) {
                                     at::Tensor y = torch::empty({2, 3});
                                     y.t_();
                                     y.copy_(x.narrow(0, 0, 3).narrow(1, 0, 2));
                                     return y.cumsum(0);
                                   })}) {
    const auto list = [&](const Tensors& inputs) { return Tensors{function(inputs[0])}; };
    CapturedStep step(list, {});
    expect_equal_calls(step, list, square);
    EXPECT_GT(replays(step.stats()), 4u) << step.explain();
  }
}

// A function may look which tensor it has: it always gets the caller's.
TEST(CaptureProof, FunctionsThatSeeWhichTensorTheyHave) {
  std::set<const void*> given, seen;
  const auto function = [&](const Tensors& x) {
    for (const at::Tensor& each : x) seen.insert(each.unsafeGetTensorImpl());
    return Tensors{x[0].is_same(x[1]) ? x[0] * 2 : x[0] * x[1]};
  };
  CapturedStep step(function, {});
  const at::Tensor other = torch::full({3}, 5.f);
  for (int i = 0; i < 20; ++i) {
    const at::Tensor x = torch::full({3}, static_cast<float>(i));
    const at::Tensor y = i % 2 ? x : other;
    given.insert({x.unsafeGetTensorImpl(), y.unsafeGetTensorImpl()});
    EXPECT_EQ(step.call({x, y})[0][0].item<float>(), i % 2 ? 2 * i : 5 * i) << i;
  }
  EXPECT_TRUE(std::includes(given.begin(), given.end(), seen.begin(), seen.end()));
  EXPECT_GT(replays(step.stats()), 8u) << step.explain();
}

// A batch that the function also reaches by another name, the same one in every call at first.
TEST(CaptureProof, AnInputThatTheFunctionAlsoKnowsByAnotherName) {
  const at::Tensor fixed = torch::full({3}, 2.f);
  for (const Function& other_name : {Function([&](const at::Tensor&) { return fixed; }),
                                     Function([&](const at::Tensor&) { return fixed.detach(); })}) {
    const auto function = [&](const Tensors& x) { return Tensors{x[0] * other_name(x[0])}; };
    CapturedStep step(function, {});
    for (int i = 0; i < 8; ++i) EXPECT_EQ(step.call({fixed})[0][0].item<float>(), 4.f);
    EXPECT_GT(replays(step.stats()), 2u) << step.explain();
    for (int i = 0; i < 16; ++i) {
      EXPECT_EQ(step.call({torch::full({3}, static_cast<float>(i))})[0][0].item<float>(), 2.f * i) << i;
    }
    EXPECT_GT(replays(step.stats()), 10u) << step.explain();
  }
}

TEST(CaptureProof, InputsThatAreSlicesOfOneTensor) {
  const at::Tensor data = torch::arange(64, torch::kFloat);
  const auto function = [&](const Tensors& x) { return Tensors{(x[0] * x[1]).cumsum(0) + data[3]}; };
  CapturedStep step(function, {});
  expect_equal_calls(step, function, [&](int i) {
    return Tensors{data.narrow(0, 16 * (i % 3), 16), data.narrow(0, 16 * (i % 2 + 1), 16)};
  });
  EXPECT_EQ(step.stats().recorded, 2u) << step.explain();
  EXPECT_GT(replays(step.stats()), 6u) << step.explain();
}

// A copy without an operator, as data() makes one.
TEST(CaptureProof, InputsThatAreUsedThroughPassingCopies) {
  const auto function = [](const Tensors& x) { return Tensors{x[0].data() * 2 + x[0].variable_data()}; };
  CapturedStep step(function, {});
  expect_equal_calls(step, function, square);
  EXPECT_GT(replays(step.stats()), 4u) << step.explain();
}

TEST(CaptureProof, MemoryThatIsOnlyReadIsNeverWritten) {
  constexpr size_t kBytes = 4096;
  void* page = mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  {
    const at::Tensor data = torch::from_blob(page, {16});
    const auto function = [&](const Tensors& x) { return Tensors{x[0] + data}; };
    CapturedStep step(function, {.check_every = 3});
    expect_equal_calls(step, function, [](int i) { return Tensors{torch::full({16}, static_cast<float>(i))}; });
    EXPECT_GT(replays(step.stats()), 4u) << step.explain();
  }
  munmap(page, kBytes);
}

// Each call waits until the other thread has written once more, in the middle of the function.
TEST(CaptureProof, MemoryThatAnotherThreadFillsKeepsItsWrites) {
  at::Tensor ring = torch::zeros({64});
  int64_t written = 0;
  CapturedStep step(
      [&](const Tensors& x) {
        at::Tensor y = x[0] + ring[0];
        std::thread([&] { ring.data_ptr<float>()[++written] = 1; }).join();
        return Tensors{y * ring[0]};
      },
      {});
  for (int i = 0; i < 20; ++i) {
    step.call({torch::ones({1})});
    // Between two calls as well.
    ring.data_ptr<float>()[++written] = 1;
    EXPECT_EQ(ring.sum().item<float>(), static_cast<float>(written)) << i;
  }
}

// The bytes that poison had once are numbers that programs write.
TEST(CaptureProof, NumbersThatThePoisonMightBe) {
  const auto function = [](const Tensors& x) {
    at::Tensor m = torch::empty({4}, torch::kLong);
    m.select(0, 0).copy_(x[1]);
    for (int k = 1; k < 4; ++k) m.data_ptr<int64_t>()[k] = -1;
    at::Tensor z = torch::full({4}, 7, torch::kLong).mul_(3);
    return Tensors{m + 1, z.cumsum(0), x[0].cumsum(0) * 2};
  };
  CapturedStep step(function, {});
  expect_equal_calls(
      step, function,
      [](int i) {
        return Tensors{torch::ones({3}) * i, torch::tensor(i)};
      },
      16);
}

// Its kernel puts other tensors into the list that it is given.
TEST(CaptureProof, KernelsThatWriteToAListOfTheirs) {
  const auto function = [](const Tensors& x) {
    const c10::List<std::optional<at::Tensor>> indices({x[2]});
    return Tensors{at::_unsafe_masked_index(x[0], x[1], indices, 7.0)};
  };
  CapturedStep step(function, {});
  expect_equal_calls(step, function, [](int i) {
    return Tensors{torch::arange(5, torch::kFloat), torch::arange(5).remainder(2) > 0,
                   (torch::arange(5) * (1 + i % 4)).remainder(5)};
  });
  EXPECT_GT(replays(step.stats()), 4u) << step.explain();
}

// What a program writes by hand between two recordings of equal data.
TEST(CaptureProof, TheTenthReplayAndTheHundredthAreCompared) {
  unsetenv("OVERDRIVE_CAPTURE_CHECK");
  int calls = 0;
  double factor = 2;
  CapturedStep step(
      [&](const Tensors& x) {
        ++calls;
        return Tensors{x[0] * factor};
      },
      {});
  for (int i = 0; i < 4 + 105; ++i) step.call({torch::ones({3}) * i});
  EXPECT_EQ(calls, 4 + 2);
  EXPECT_EQ(step.stats().checked, 3u);
  EXPECT_EQ(replays(step.stats()), 103u);
  CapturedStep other([&](const Tensors& x) { return Tensors{x[0] * factor}; }, {});
  for (int i = 0; i < 8; ++i) other.call({torch::ones({3}) * i});
  factor = 3;
  std::string error;
  for (int i = 0; i < 10 && other.refusal().empty(); ++i)
    error = error_of([&] { other.call({torch::ones({3})}); });
  EXPECT_THAT(error, AllOf(HasSubstr("a replay differs"), HasSubstr("aten::mul"), HasSubstr("varies")));
  EXPECT_EQ(other.refusal(), error);
  setenv("OVERDRIVE_CAPTURE_CHECK", "0", 1);
}

TEST(CaptureProof, StepsThatAreSwitchedOffAreEager) {
  for (const char* name : {"OVERDRIVE", "OVERDRIVE_CAPTURE"}) {
    setenv(name, "0", 1);
    auto step = capture([](const at::Tensor& x) { return x * 2; });
    for (int i = 0; i < 8; ++i) step(torch::ones({2}));
    EXPECT_EQ(step.stats().eager, 8u);
    EXPECT_THAT(step.explain(), HasSubstr("OVERDRIVE_CAPTURE=0"));
    setenv(name, "no", 1);
    EXPECT_THAT(error_of([] { capture([](const at::Tensor& x) { return x; }); }), HasSubstr(name));
    unsetenv(name);
  }
}

TEST(CaptureProof, AStepThatItsFunctionCallsIsEager) {
  int depth = 0;
  CapturedStep* itself = nullptr;
  CapturedStep step(
      [&](const Tensors& x) {
        if (depth > 0) return Tensors{x[0] + 1};
        ++depth;
        Tensors results = itself->call(x);
        --depth;
        return Tensors{results[0] * 2};
      },
      {});
  itself = &step;
  for (int i = 0; i < 8; ++i) EXPECT_EQ(step.call({torch::ones({2})})[0][0].item<float>(), 4.f) << i;
  EXPECT_THAT(step.refusal(), HasSubstr("inside another one"));
}

TEST(CaptureProof, WrongUsesAreNamed) {
  EXPECT_THAT(error_of([] { capture([](const at::Tensor& x) { return x; }, {.modules = {nullptr}}); }),
              HasSubstr(".modules"));
  auto step = capture([](const at::Tensor& x) { return x * 2; });
  EXPECT_THAT(error_of([&] { step.watch(static_cast<const double*>(nullptr)); }), HasSubstr("null pointer"));
  auto other = std::move(step);
  EXPECT_THAT(error_of([&] { step(torch::ones({2})); }), HasSubstr("moved"));
  EXPECT_EQ(other.stats().calls, 0u);
}

}  // namespace
}  // namespace overdrive::test
