// What a recording knows of values: which are constants, which are data, and which numbers may change.
#include "engine/engine.h"
#include "hooks/hooks.h"
#include "test/replay/replay_fixture.h"

#include <torch/nn/utils/rnn.h>

namespace overdrive::test {
namespace {

using Step = std::function<Tensors(const Tensors&)>;

// Calls a captured step and the function in turn: on the first inputs, and four times on the others. Says where
// they differ.
std::string first_wrong(const Step& function, const Tensors& before, const Tensors& after, CapturedStep& step) {
  for (int i = 0; i < 24; ++i) {
    const Tensors& inputs = i >= 7 && i % 5 == 2 ? after : before;
    const Tensors got = step.call(inputs), wanted = function(inputs);
    for (size_t k = 0; k < wanted.size(); ++k) {
      if (!same_bits(got.at(k), wanted[k].detach())) return c10::str("call ", i, ", result ", k);
    }
  }
  return "";
}

struct HostRead {
  const char* name;
  Step function;
  Tensors before, after;
};

std::vector<HostRead> host_reads() {
  const at::Tensor x = torch::arange(8.0), rows = torch::rand({4, 3, 3});
  const auto lengths = [](std::vector<int64_t> values) { return torch::tensor(values); };
  return {
      {"an accessor",
       [](const Tensors& in) { return Tensors{in[0] * in[0].accessor<float, 1>()[1]}; },
       {x},
       {x + 2}},
      {"tensor_split",
       [](const Tensors& in) { return Tensors{torch::tensor_split(in[0], in[1])[0].sum()}; },
       {x, lengths({2})},
       {x, lengths({5})}},
      {"max_pool1d without a graph",
       [](const Tensors& in) {
         const torch::NoGradGuard no_grad;
         return Tensors{torch::max_pool1d(in[0].view({1, 1, 8}), 2) * 2};
       },
       {x},
       {x * 3}},
      {"the gradient of pack_padded_sequence",
       [](const Tensors& in) {
         const at::Tensor leaf = in[0].clone().requires_grad_();
         const auto packed = torch::nn::utils::rnn::pack_padded_sequence(leaf, in[1], true);
         (packed.data() * torch::arange(packed.data().size(0)).unsqueeze(1)).sum().backward();
         return Tensors{leaf.grad() * 1};
       },
       {rows, lengths({3, 3, 2, 1})},
       {rows, lengths({3, 2, 2, 2})}},
      {"a buffer filled by hand",
       [](const Tensors& in) {
         at::Tensor mask = torch::empty({8});
         for (int i = 0; i < 8; ++i) mask.data_ptr<float>()[i] = in[0].const_data_ptr<float>()[i] > 2;
         return Tensors{in[0] * mask};
       },
       {x},
       {x + 1}},
  };
}

TEST(CaptureValues, ThatTheHostReadsAreNoConstants) {
  for (const HostRead& read : host_reads()) {
    CapturedStep step(read.function, {});
    EXPECT_EQ(first_wrong(read.function, read.before, read.after, step), "") << read.name;
    // Whether the doubt found it, or two recordings with other values.
    const bool told = step.refusal().find("An input was the same in all recorded calls") != std::string::npos ||
                      step.refusal().find(" varies") != std::string::npos ||
                      step.refusal().find("is filled through a pointer") != std::string::npos;
    EXPECT_TRUE(told) << read.name << ": " << step.refusal();
  }
}

TEST(CaptureValues, OfABufferThatTheHostReadsAreNoConstants) {
  const at::Tensor places = torch::tensor({2, 5});
  const Step function = [&](const Tensors& in) { return Tensors{torch::tensor_split(in[0], places)[1].sum()}; };
  CapturedStep step(function, {});
  const Tensors x{torch::arange(8.0)};
  EXPECT_EQ(first_wrong(function, x, x, step), "");
  EXPECT_GT(replays(step.stats()), 0u);
  places[1] = 7;
  EXPECT_TRUE(same_bits(step.call(x)[0], function(x)[0]));
  EXPECT_NE(step.explain().find("A tensor from outside that the function only reads was the same"),
            std::string::npos);
}

TEST(CaptureValues, ThatWereTheSameByChanceCostOneMoreCall) {
  const at::Tensor scale = torch::ones({3});
  const Step function = [&](const Tensors& in) { return Tensors{in[0] * in[1] * scale}; };
  CapturedStep step(function, {});
  const at::Tensor x = torch::ones({3});
  for (int i = 0; i < 20; ++i) {
    const Tensors inputs{x * (i < 8 ? 1 : i), x * i};
    if (i >= 12) scale.fill_(i);
    EXPECT_TRUE(same_bits(step.call(inputs)[0], function(inputs)[0])) << i;
  }
  EXPECT_EQ(step.refusal(), "");
  EXPECT_EQ(step.stats().checked, 3u);
  EXPECT_EQ(replays(step.stats()), 14u) << step.explain();
}

TEST(CaptureValues, OfStateThatIsAssignedAnewAreNoConstants) {
  at::Tensor scale = torch::tensor(8.0), wanted = scale.clone();
  const auto next = [](const at::Tensor& from, const at::Tensor& x) {
    return torch::where(torch::isfinite(x.sum()), from, from * 0.5);
  };
  auto step = capture([&](at::Tensor x) {
    scale = next(scale, x);
    return scale * 1;
  });
  for (int i = 0; i < 12; ++i) {
    const at::Tensor x = torch::full({3}, i == 7 ? std::numeric_limits<float>::infinity() : 1.0f * i);
    wanted = next(wanted, x);
    EXPECT_TRUE(same_bits(step(x), wanted)) << i;
  }
  EXPECT_NE(step.refusal().find("replaces in each call"), std::string::npos) << step.refusal();
}

// --- numbers

using Update = std::function<void(at::Tensor& p, const at::Tensor& g, double rate)>;

std::vector<std::pair<const char*, Update>> updates() {
  return {
      {"sub_ by alpha", [](auto& p, auto& g, double r) { p.sub_(g, r); }},
      {"sub_ of a product", [](auto& p, auto& g, double r) { p.sub_(r * g); }},
      {"lerp_", [](auto& p, auto& g, double r) { p.lerp_(g, r); }},
      {"clamp_", [](auto& p, auto&, double r) { p.clamp_(-r, r); }},
      {"mul_", [](auto& p, auto&, double r) { p.mul_(1 - r); }},
      {"addcmul_", [](auto& p, auto& g, double r) { p.addcmul_(g, g, r); }},
      {"_foreach_lerp_", [](auto& p, auto& g, double r) { at::_foreach_lerp_(Tensors{p}, Tensors{g}, r); }},
      {"_foreach_add_", [](auto& p, auto& g, double r) { at::_foreach_add_(Tensors{p}, Tensors{g}, r); }},
      {"out=", [](auto& p, auto& g, double r) { at::add_out(p, p, g, r); }},
      {"copy_", [](auto& p, auto& g, double r) { p.copy_(r * g + (1 - r) * p); }},
      {"a tensor of one number",
       [](auto& p, auto& g, double r) { p.sub_(g * torch::tensor(r, torch::kFloat)); }},
      {"full", [](auto& p, auto& g, double r) { p.sub_(g * torch::full({}, r)); }},
      {"scalar_tensor", [](auto& p, auto& g, double r) { p.sub_(g * torch::scalar_tensor(r)); }},
      {"the gradient first", [](auto& p, auto& g, double r) { p.sub_(at::Tensor(g).mul_(r)); }},
      {"a long way", [](auto& p, auto& g, double r) { p.add_((((g * r).neg() + g).sqrt().abs() - g).exp()); }},
  };
}

TEST(CaptureNumbers, ThatChangeAParameterAreRefused) {
  for (const auto& [name, update] : updates()) {
    for (const bool parameter : {true, false}) {
      at::Tensor p = torch::ones({3}), reference = torch::ones({3});
      p.requires_grad_(parameter);
      double rate = 0.1;
      const auto go = [&, &change = update](at::Tensor& t, const at::Tensor& x) {
        const torch::NoGradGuard no_grad;
        change(t, x * x, rate);
        return t.sum();
      };
      auto step = capture([&](at::Tensor x) { return go(p, x); });
      for (int i = 0; i < 10; ++i) {
        if (i == 7) rate = 0.01;
        const at::Tensor x = torch::full({3}, i + 1.0);
        EXPECT_TRUE(same_bits(step(x), go(reference, x))) << name << ", call " << i;
      }
      EXPECT_NE(step.refusal().find("by a number"), std::string::npos) << name << parameter << step.refusal();
      EXPECT_EQ(replays(step.stats()), 0u) << name;
    }
  }
}

TEST(CaptureNumbers, OfLossesModelsAndCountersAreNot) {
  torch::nn::Linear model(4, 3);
  torch::nn::BatchNorm1d norm(3);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  const at::Tensor count = torch::zeros({}), seen = torch::zeros({}, torch::kLong), last = torch::zeros({});
  auto step = capture(
      [&](at::Tensor x) {
        optimizer.zero_grad();
        const at::Tensor y = torch::dropout(norm->forward(model->forward(x)), 0.25, true);
        const at::Tensor loss = 0.5 * (y.square() + 1e-6).sqrt().mean() / 4;
        loss.backward();
        torch::nn::utils::clip_grad_value_(model->parameters(), 0.5);
        optimizer.step();
        const torch::NoGradGuard no_grad;
        count.add_(1);
        seen.add_(x.size(0) * 2);
        last.copy_(loss * 2);
        return loss;
      },
      {.optimizer = &optimizer, .modules = {norm.ptr()}});
  for (int i = 0; i < 8; ++i) step(torch::randn({5, 4}));
  EXPECT_EQ(step.refusal(), "");
  EXPECT_EQ(replays(step.stats()), 4u);
  EXPECT_EQ(count.item<float>(), 8);
}

// --- the rest of the borders

TEST(CaptureValues, OurOwnHooksOnSavedTensorsAreCalled) {
  struct Twice final : hooks::SavedTensorHooks {
    hooks::Packed pack(const at::Tensor& t, const hooks::SaveInfo&) override {
      return hooks::Packed::of(t * 2);
    }
    at::Tensor unpack(hooks::Packed& p, const hooks::UnpackInfo&) override { return p.tensors[0]; }
    std::string name() const override { return "twice"; }
  };
  const ScopedInstall installed;
  at::Tensor w = torch::ones({3}).requires_grad_();
  const auto function = [&](at::Tensor x) {
    w.mutable_grad() = at::Tensor();
    (w * x).exp().sum().backward();
    return w.grad() * 1;
  };
  auto step = capture(function);
  const at::Tensor x = torch::ones({3});
  for (int i = 0; i < 6; ++i) step(x);
  const uint64_t replayed = replays(step.stats());
  {
    const hooks::ScopedHooks scope(std::make_shared<Twice>());
    EXPECT_FALSE(step.would_replay({x}));
    EXPECT_TRUE(same_bits(step(x), function(x)));
  }
  EXPECT_EQ(replays(step.stats()), replayed);
  EXPECT_TRUE(same_bits(step(x), function(x)));
  EXPECT_EQ(replays(step.stats()), replayed + 1);
}

TEST(CaptureValues, OfSettingsInsideAreRefused) {
  const std::vector<std::pair<const char*, std::function<at::Tensor(at::Tensor)>>> functions{
      {"denormals",
       [](at::Tensor x) {
         at::globalContext().setFlushDenormal(true);
         at::Tensor y = x * 1e-20;
         at::globalContext().setFlushDenormal(false);
         return y;
       }},
      {"threads",
       [](at::Tensor x) {
         const int threads = at::get_num_threads();
         at::set_num_threads(threads + 1);
         at::Tensor y = x.sum();
         at::set_num_threads(threads);
         return y;
       }},
      {"oneDNN",
       [](at::Tensor x) {
         at::globalContext().setUserEnabledMkldnn(false);
         at::Tensor y = x + 1;
         at::globalContext().setUserEnabledMkldnn(true);
         return y;
       }},
  };
  for (const auto& [name, function] : functions) {
    auto step = capture(function);
    for (int i = 0; i < 6; ++i) step(torch::full({16}, 1e-5));
    EXPECT_TRUE(same_bits(step(torch::full({16}, 1e-20)), function(torch::full({16}, 1e-20)))) << name;
    EXPECT_NE(step.refusal().find("other settings"), std::string::npos) << name << step.refusal();
  }
}

TEST(CaptureValues, ListsThatAKernelWritesInto) {
  const auto function = [](at::Tensor x, at::Tensor mask, at::Tensor index) {
    c10::List<std::optional<at::Tensor>> indices({index});
    return at::_unsafe_masked_index(x, mask, indices, 7.0);
  };
  auto step = capture(function);
  for (int i = 0; i < 9; ++i) {
    const at::Tensor x = torch::arange(5.0), mask = torch::arange(5) > i % 3, index = torch::randperm(5);
    EXPECT_TRUE(same_bits(step(x, mask, index), function(x, mask, index))) << i;
  }
}

TEST(CaptureResults, ThatShareMemoryDoSoInEveryCall) {
  auto step = capture([](at::Tensor x) {
    const at::Tensor y = x * 2;
    return std::make_tuple(y, y.view({-1}), y.diagonal());
  });
  for (int i = 0; i < 7; ++i) {
    const auto [a, b, c] = step(torch::ones({2, 2}));
    b.add_(5);
    EXPECT_EQ(a[0][0].item<float>(), 7) << i;
    EXPECT_EQ(c.strides(), at::IntArrayRef({3})) << i;
    EXPECT_EQ(c[1].item<float>(), 7) << i;
  }
}

TEST(CaptureResults, HaveTheStridesOfEager) {
  auto step = capture([](at::Tensor x) { return (x * 2).diagonal(); });
  for (int i = 0; i < 6; ++i) EXPECT_EQ(step(torch::ones({4, 4})).strides(), at::IntArrayRef({5})) << i;
}

TEST(CaptureCalls, AFunctionThatCallsItsOwnStepRecurses) {
  CapturedStep* self = nullptr;
  int depth = 0;
  CapturedStep step(
      [&](const Tensors& x) {
        if (depth > 0) return Tensors{x[0] + 1};
        ++depth;
        const at::Tensor inner = self->call(x)[0];
        --depth;
        return Tensors{inner * 2};
      },
      {});
  self = &step;
  for (int i = 0; i < 6; ++i) EXPECT_EQ(step.call({torch::ones({1})})[0].item<float>(), 4) << i;
  EXPECT_NE(step.refusal(), "");
}

TEST(CaptureCalls, AProgramThatNoCallFitsAnyMoreMakesRoom) {
  auto step = capture([](at::Tensor x) { return x * 2; }, {.programs = 1});
  for (int i = 0; i < 8; ++i) step(torch::ones({i % 2 + 1}));
  EXPECT_EQ(replays(step.stats()), 0u);
  for (int i = 0; i < 40; ++i) step(torch::ones({3}));
  EXPECT_GT(replays(step.stats()), 15u) << step.explain();
}

}  // namespace
}  // namespace overdrive::test
