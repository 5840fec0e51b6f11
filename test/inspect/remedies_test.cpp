// What a remedy would give: the prediction against the same step with the remedy. Bytes are counted, nothing is
// timed.
#include "checkpoint/checkpoint.h"
#include "hooks/hooks.h"
#include "inspect/inspect.h"

#include "test/support/engines.h"

#include <ATen/SequenceNumber.h>
#include <nlohmann/json.hpp>

#include <functional>
#include <sstream>

namespace {

using namespace overdrive;
using torch::Tensor;
using Layer = std::function<Tensor(const Tensor&)>;

// A chain of layers from the input to the loss.
struct Net {
  Tensor input;
  std::vector<Tensor> parameters;
  std::vector<Layer> layers;

  Tensor parameter(at::IntArrayRef sizes) {
    parameters.push_back((torch::randn(sizes) * 0.05).requires_grad_());
    return parameters.back();
  }
  Tensor run(size_t begin, size_t end, Tensor value) const {
    for (size_t i = begin; i < end; ++i) value = layers[i](value);
    return value;
  }
};

Net conv_net() {
  Net net;
  net.input = torch::randn({8, 3, 32, 32});
  int64_t channels = 3;
  for (const int64_t out : {16, 16, 16, 16, 32, 32}) {
    const Tensor weight = net.parameter({out, channels, 3, 3}), bias = net.parameter({out});
    net.layers.push_back([=](const Tensor& x) { return at::conv2d(x, weight, bias, 1, 1); });
    net.layers.push_back([](const Tensor& x) { return x.relu(); });
    if (net.layers.size() == 8) net.layers.push_back([](const Tensor& x) { return at::max_pool2d(x, {2, 2}); });
    channels = out;
  }
  const Tensor weight = net.parameter({10, channels * 16 * 16});
  net.layers.push_back([](const Tensor& x) { return x.flatten(1); });
  net.layers.push_back([=](const Tensor& x) { return at::linear(x, weight); });
  net.layers.push_back([](const Tensor& x) { return x.log_softmax(1); });
  net.layers.push_back([](const Tensor& x) { return x.mean(); });
  return net;
}

Net transformer() {
  constexpr int64_t kBatch = 4, kTokens = 48, kWidth = 64, kHeads = 4;
  Net net;
  net.input = torch::randn({kBatch, kTokens, kWidth});
  const Tensor place = net.parameter({kTokens, kWidth});
  net.layers.push_back([=](const Tensor& x) { return x + place; });
  for (int block = 0; block < 3; ++block) {
    const Tensor scale = net.parameter({kWidth}), shift = net.parameter({kWidth});
    const Tensor qkv = net.parameter({3 * kWidth, kWidth}), out = net.parameter({kWidth, kWidth});
    net.layers.push_back([=](const Tensor& x) {
      const Tensor parts = at::linear(at::layer_norm(x, {kWidth}, scale, shift), qkv)
                               .view({kBatch, kTokens, 3, kHeads, kWidth / kHeads})
                               .permute({2, 0, 3, 1, 4});
      const Tensor scores = (parts[0].matmul(parts[1].transpose(-2, -1)) * 0.25).softmax(-1);
      return x + at::linear(scores.matmul(parts[2]).transpose(1, 2).reshape({kBatch, kTokens, kWidth}), out);
    });
    const Tensor up = net.parameter({4 * kWidth, kWidth}), down = net.parameter({kWidth, 4 * kWidth});
    net.layers.push_back([=](const Tensor& x) {
      return x + at::linear(at::gelu(at::linear(at::layer_norm(x, {kWidth}, scale, shift), up)), down);
    });
  }
  net.layers.push_back([](const Tensor& x) { return x.square(); });
  net.layers.push_back([](const Tensor& x) { return x.mean(); });
  return net;
}

class Remedies : public testing::TestWithParam<std::pair<const char*, Net (*)()>> {
 protected:
  void forget_gradients() const {
    for (const Tensor& parameter : net_.parameters) parameter.mutable_grad() = Tensor();
  }
  void step() {
    forget_gradients();
    begins_.clear();
    Tensor value = net_.input;
    for (const Layer& layer : net_.layers) {
      begins_.push_back(at::sequence_number::peek());
      value = layer(value);
    }
    begins_.push_back(at::sequence_number::peek());
    value.backward();
  }
  size_t layer_at(uint64_t sequence) const {
    const auto found = std::find(begins_.begin(), begins_.end(), sequence);
    EXPECT_NE(found, begins_.end()) << sequence << " is in the middle of a layer";
    return static_cast<size_t>(found - begins_.begin());
  }
  MemoryTimeline measured(const Remedy& remedy) {
    std::vector<std::pair<size_t, size_t>> segments;
    for (const auto& [first, last] : remedy.segments)
      segments.emplace_back(layer_at(first), layer_at(last + 1));
    const auto treated = [&] {
      forget_gradients();
      if (remedy.kind == Remedy::kInt8) {
        const SavedTensorHooksGuard scope(hooks::quantise());
        return net_.run(0, net_.layers.size(), net_.input).backward();
      }
      Tensor value = net_.input;
      size_t next = 0;
      for (const auto& [begin, end] : segments) {
        value = net_.run(next, begin, std::move(value));
        value = checkpointed([this, from = begin, to = end](const Tensor& x) { return net_.run(from, to, x); },
                             std::move(value));
        next = end;
      }
      net_.run(next, net_.layers.size(), std::move(value)).backward();
    };
    treated();
    return memory_timeline(treated);
  }

  const ScopedInstall engine_;
  const Net net_ = (torch::manual_seed(0), GetParam().second());
  std::vector<uint64_t> begins_;
};

TEST_P(Remedies, LowerThePeakAsPredicted) {
  step();
  const MemoryTimeline now = memory_timeline([this] { step(); });
  ASSERT_EQ(now.remedies.size(), 3u) << "int8, one segment, several";
  for (const Remedy& remedy : now.remedies) {
    const MemoryTimeline then = measured(remedy);
    const int64_t peak = then.peak_bytes;
    const double off = static_cast<double>(remedy.peak_bytes) / static_cast<double>(peak) - 1;
    EXPECT_NEAR(off, 0, 0.1) << remedy.name << ": now " << now.peak_bytes << ", predicted " << remedy.peak_bytes
                             << ", measured " << peak << "\n"
                             << now << "\n"
                             << then;
    EXPECT_LT(remedy.peak_bytes, now.peak_bytes) << remedy.name;
  }
}

TEST_P(Remedies, AreOnThePage) {
  const MemoryTimeline now = memory_timeline([this] { step(); });
  const nlohmann::json numbers = nlohmann::json::parse(to_json(now));
  EXPECT_EQ(numbers["peak_bytes"], now.peak_bytes);
  EXPECT_EQ(numbers["points"].size(), now.points.size());
  EXPECT_EQ(numbers["points"][0].size(), 1 + inspect::kMemoryKinds);
  ASSERT_EQ(numbers["remedies"].size(), now.remedies.size());
  EXPECT_EQ(numbers["remedies"][0]["name"], now.remedies[0].name);
  const std::string page = to_html(now, "a </script> name");
  EXPECT_THAT(page, testing::HasSubstr(now.remedies[0].name));
  EXPECT_THAT(page, testing::HasSubstr("a \\u003c/script> name"));
  std::ostringstream text;
  text << now;
  EXPECT_THAT(text.str(), testing::HasSubstr("pack saved tensors as int8"));
}

INSTANTIATE_TEST_SUITE_P(Nets, Remedies,
                         testing::Values(std::pair("conv_net", &conv_net),
                                         std::pair("transformer", &transformer)),
                         [](const auto& net) { return net.param.first; });

TEST(RemediesOfNothing, AreNone) {
  const ScopedInstall engine;
  EXPECT_TRUE(memory_timeline([] { torch::ones({100}).exp(); }).remedies.empty());
}

}  // namespace
