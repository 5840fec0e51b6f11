// Operators with unusual arguments and results, a step each: replayed with the bits of the function itself, or
// refused with a reason.
#include "test/replay/replay_fixture.h"

#include <ATen/autocast_mode.h>

#include <thread>

namespace overdrive::test {
namespace {

using at::indexing::None;
using at::indexing::Slice;
using testing::HasSubstr;

using Function = std::function<Tensors(const Tensors&)>;

struct Operation {
  const char* name;
  Function function;
};

Tensors inputs_of(int call) { return {batch_of(call, {4, 6}, {4, 6})[0], batch_of(call, {4, 6}, {4, 6})[1]}; }

// Calls the captured function and the function itself in turn, on the same inputs. Says where the first
// difference is, or that nothing was replayed.
std::string differences(const Function& function, CapturedStep& step) {
  for (int call = 0; call < 10; ++call) {
    const Tensors results = step.call(inputs_of(call)), expected = function(inputs_of(call));
    if (results.size() != expected.size()) return c10::str("call ", call, ": ", results.size(), " results");
    for (size_t i = 0; i < results.size(); ++i) {
      if (!same_bits(results[i], expected[i])) return c10::str("call ", call, ": result ", i, " differs");
      if (results[i].defined() && results[i].strides() != expected[i].strides())
        return c10::str("call ", call, ": result ", i, " has other strides");
    }
  }
  return replays(step.stats()) > 3 ? "" : step.explain();
}

std::string differences(const Function& function) {
  CapturedStep step(function, {});
  return differences(function, step);
}

const at::Tensor& rows() {
  static const at::Tensor rows = torch::tensor({2, 0, 3});
  return rows;
}

const at::Tensor& columns() {
  static const at::Tensor columns = torch::tensor({{5, 1}, {0, 2}, {3, 3}, {4, 0}});
  return columns;
}

const Operation kReplayed[] = {
    {"index", [](const Tensors& x) { return Tensors{x[0].index({rows()}) + 1}; }},
    {"index_of_a_later_dimension",
     [](const Tensors& x) {
       return Tensors{x[0].index({Slice(), rows()}) * 2};
     }},
    {"index_with_new_dimensions",
     [](const Tensors& x) {
       return Tensors{x[0].index({None, rows(), Slice(1, 5, 2)}) * 2};
     }},
    {"index_put",
     [](const Tensors& x) { return Tensors{x[0].clone().index_put_({rows()}, x[1].index({rows()}))}; }},
    {"index_put_that_adds",
     [](const Tensors& x) {
       return Tensors{x[0].index_put({rows(), rows()}, torch::ones({3}), true)};
     }},
    {"indices_that_change",
     [](const Tensors& x) {
       return Tensors{x[0].index({x[1].argsort(true, 0).select(1, 2), x[0].argmax(1) % 6})};
     }},
    {"a_mask_that_changes",
     [](const Tensors& x) {
       const at::Tensor mask = x[1] > x[0];
       return Tensors{x[0].clone().index_put_({mask}, torch::full({}, 0.5)), x[0].masked_fill(mask, -1)};
     }},
    {"gather_and_scatter",
     [](const Tensors& x) {
       const at::Tensor picked = x[0].gather(1, columns());
       return Tensors{torch::zeros({4, 6}).scatter_add_(1, columns(), picked), picked};
     }},
    {"lists",
     [](const Tensors& x) {
       const Tensors parts = x[0].split(2, 1);
       return Tensors{torch::cat({parts[2], parts[0]}, 1), torch::stack(x[1].unbind(1), 0)};
     }},
    {"order",
     [](const Tensors& x) {
       const auto [values, places] = x[0].topk(3, 1);
       const auto [sorted, order] = x[1].sort(0);
       return Tensors{values * 1, places + 0, sorted + order};
     }},
    {"extremes",
     [](const Tensors& x) {
       const auto [most, where] = x[0].max(1);
       return Tensors{torch::minimum(x[0], x[1]), torch::maximum(x[0], x[1]), most * where};
     }},
    {"doubles",
     [](const Tensors& x) {
       const at::Tensor a = x[0].to(torch::kDouble), b = x[1].to(torch::kDouble);
       return Tensors{a * b - 0.1 * a, a / (b * b + 0.5), torch::exp(a).clamp(0.5, 1.5), (a - b).sum()};
     }},
    {"numbers_written_into_an_empty_tensor",
     [](const Tensors& x) {
       at::Tensor weights = torch::empty({6});
       for (int i = 0; i < 6; ++i) weights.data_ptr<float>()[i] = 0.25F * static_cast<float>(i);
       return Tensors{x[0] * weights};
     }},
    {"a_result_that_is_not_there",
     [](const Tensors& x) {
       return Tensors{x[0] + 1, at::Tensor(), x[1] + 1};
     }},
    {"a_gradient_of_a_gradient",
     [](const Tensors& x) {
       const at::Tensor a = x[0].detach().clone().requires_grad_();
       const at::Tensor first = torch::autograd::grad({(a * a * x[1]).sum()}, {a}, {}, true, true)[0];
       return Tensors{torch::autograd::grad({first.sin().sum()}, {a})[0]};
     }},
    {"a_gradient_through_an_index",
     [](const Tensors& x) {
       const at::Tensor a = x[0].detach().clone().requires_grad_();
       return Tensors{
           torch::autograd::grad({(a.index({rows(), rows()}) * a.gather(1, columns()).sum()).sum()}, {a})[0]};
     }},
};

class CaptureOperators : public testing::TestWithParam<Operation> {};

TEST_P(CaptureOperators, AreReplayedWithTheSameBits) { EXPECT_EQ(differences(GetParam().function), ""); }

INSTANTIATE_TEST_SUITE_P(, CaptureOperators, testing::ValuesIn(kReplayed),
                         [](const auto& each) { return std::string(each.param.name); });

TEST(CaptureOperatorsApart, DrawFromAGeneratorOfTheProgram) {
  at::Generator generator = at::detail::createCPUGenerator(5);
  CapturedStep step([&](const Tensors& x) { return Tensors{x[0] * torch::rand({4, 6}, generator)}; }, {});
  for (int call = 0; call < 10; ++call) {
    const Tensors inputs = inputs_of(call);
    const at::Tensor before = generator.get_state();
    const at::Tensor result = step.call(inputs)[0], after = generator.get_state();
    generator.set_state(before);
    EXPECT_TRUE(same_bits(result, inputs[0] * torch::rand({4, 6}, generator))) << call;
    EXPECT_TRUE(same_bits(after, generator.get_state())) << call;
  }
  EXPECT_GT(replays(step.stats()), 3u) << step.explain();
}

// The function runs eagerly, with the same results, and the refusal names the reason.
std::string refusal_of(const Function& function) {
  CapturedStep step(function, {});
  for (int call = 0; call < 8; ++call) {
    EXPECT_TRUE(same_bits(step.call(inputs_of(call))[0], function(inputs_of(call))[0]));
  }
  EXPECT_EQ(replays(step.stats()), 0u) << step.explain();
  return step.refusal();
}

// The casts are operators of the recording, unless they are kept from call to call.
TEST(CaptureOperatorsApart, UnderAutocast) {
  for (const bool clears : {true, false}) {
    const at::Tensor weight = torch::randn({3, 6}).requires_grad_();
    const auto step = [&](const Tensors& x) {
      at::autocast::set_autocast_enabled(at::kCPU, true);
      Tensors results{x[0].mm(weight)};
      at::autocast::set_autocast_enabled(at::kCPU, false);
      if (clears) at::autocast::clear_cache();
      return results;
    };
    CapturedStep captured(step, {.constant_numbers = true});
    for (int i = 0; i < 20; ++i) {
      const Tensors x{torch::randn({4, 3})};
      at::autocast::clear_cache();
      const at::Tensor result = captured.call(x)[0];
      EXPECT_TRUE(same_bits(result, step(x)[0].detach()));
      const torch::NoGradGuard no_grad;
      at::Tensor(weight).mul_(1.1);
    }
    EXPECT_EQ(replays(captured.stats()) > 10, clears) << captured.refusal();
    EXPECT_THAT(captured.refusal(), HasSubstr(clears ? "" : "clear_cache"));
    at::autocast::clear_cache();
  }
}

TEST(CaptureOperatorsApart, OnAnotherThreadAreRefused) {
  const auto step = [](const Tensors& x) {
    at::Tensor sum;
    std::thread([&] { sum = x[0] + x[1]; }).join();
    return Tensors{sum * 2};
  };
  EXPECT_NE(refusal_of(step), "");
}

TEST(CaptureOperatorsApart, ThroughAPassingCopyOfATensorAreRefused) {
  const at::Tensor w = torch::ones({6}).requires_grad_();
  const auto step = [&](const Tensors& x) { return Tensors{x[0] * w.variable_data()}; };
  EXPECT_THAT(refusal_of(step), HasSubstr("detach()"));
}

TEST(CaptureOperatorsApart, OnSparseTensorsAreRefused) {
  const at::Tensor sparse = torch::eye(4).to_sparse();
  EXPECT_THAT(refusal_of([&](const Tensors& x) { return Tensors{torch::mm(sparse, x[0])}; }),
              HasSubstr("dense"));
}

TEST(CaptureOperatorsApart, WhoseResultIsANumberAreRefused) {
  EXPECT_NE(refusal_of([](const Tensors& x) { return Tensors{x[0][0][0].is_nonzero() ? x[0] + 1 : x[1] + 1}; }),
            "");
}

}  // namespace
}  // namespace overdrive::test
