// The comparison finds what it is there to find, and its JSON has what it measured.
#include "examples/harness/comparison.h"
#include "examples/trainers/trainer.h"
#include "test/support/error_of.h"
#include "test/support/pch.h"

#include <torch/script.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

namespace {

using namespace overdrive::harness;
using namespace overdrive::trainers;

// Learns nothing: adds one to a parameter each step. The copy made second adds a little more to one
// element from `parts_at` on.
class Counter final : public Trainer {
 public:
  Counter(const Setup& setup, int64_t parts_at) : Trainer(setup), parts_at_(parts_at) {
    weight_ = register_parameter("weight", torch::zeros({4}));
  }
  double step(Meter& meter) override {
    weight_.mutable_grad().reset();
    const auto loss = meter.forward([&] { return weight_.sum(); });
    meter.backward(loss);
    torch::NoGradGuard no_grad;
    weight_.add_(weight_.grad());
    if (++steps_ >= parts_at_) weight_[2].add_(0.5);
    return 0;
  }
  double evaluate() override { return weight_.sum().item<double>(); }

 private:
  const int64_t parts_at_;
  int64_t steps_ = 0;
  torch::Tensor weight_;
};

TrainerInfo counter(int64_t second_parts_at) {
  constexpr int64_t kNever = 1'000'000;
  auto made = std::make_shared<int>(0);
  TrainerInfo info;
  info.name = "counter";
  info.make = [=](const Setup& setup) {
    return std::make_unique<Counter>(setup, ++*made == 2 ? second_parts_at : kNever);
  };
  return info;
}

TEST(Comparison, NamesTheFirstStepParameterElementAndBothValues) {
  const TrainerInfo info = counter(/*second_parts_at=*/5);
  const Comparison result = compare(info, {.steps = 10, .block = 3});
  ASSERT_TRUE(result.difference.has_value());
  EXPECT_EQ(result.difference->step, 5);
  EXPECT_EQ(result.difference->parameter, "weight");
  EXPECT_EQ(result.difference->element, 2);
  EXPECT_EQ(result.difference->stock, 5.0);
  EXPECT_EQ(result.difference->overdrive, 5.5);
}

TEST(Comparison, FindsNothingBetweenEqualCopiesAndCountsTheirNodes) {
  const TrainerInfo info = counter(/*second_parts_at=*/100);
  const Comparison result = compare(info, {.steps = 4});
  EXPECT_FALSE(result.difference.has_value());
  EXPECT_EQ(result.steps, 4);
  EXPECT_EQ(result.nodes_per_backward, 2);  // SumBackward and AccumulateGrad
  EXPECT_EQ(result.backwards_per_step, 1);
  EXPECT_EQ(result.stock.quality, 16);
}

TEST(Comparison, WritesEveryFigureOfBothEngines) {
  const TrainerInfo info = counter(/*second_parts_at=*/100);
  const nlohmann::json json = to_json(compare(info, {.steps = 9, .block = 3}));
  for (const char* side : {"stock", "overdrive"}) {
    const nlohmann::json& cost = json[side];
    EXPECT_EQ(cost["losses"].size(), 9u);
    EXPECT_EQ(cost["seconds_of_every_step"].size(), 6u);  // all but those of the first block
    for (const char* what : {"step", "forward", "backward"}) {
      EXPECT_EQ(cost[std::string(what) + "_seconds_per_block"].size(), 2u);
      EXPECT_GT(cost[std::string(what) + "_seconds"]["median"], 0);
    }
    EXPECT_GE(cost["step_seconds"]["median"], cost["backward_seconds"]["median"]);
    EXPECT_GT(cost["tensor_allocations_per_step"], 0);
    EXPECT_GT(cost["peak_tensor_bytes"], 0);
    const nlohmann::json& curve = cost["memory_over_a_step"];
    EXPECT_GT(curve["seconds"].size(), 1u);
    EXPECT_EQ(curve["seconds"].size(), curve["tensor_bytes"].size());
    for (const char* what : {"waits_per_step", "preemptions_per_step", "threads_started"})
      EXPECT_GE(cost[what], 0);
  }
  EXPECT_LE(json["step_ratio"]["lo"], json["step_ratio"]["hi"]);
}

// A model as somebody else would bring it: dropout, two outputs, embeddings.
std::string write_module() {
  torch::jit::Module module("m");
  module.register_parameter("table", torch::randn({11, 4}, torch::requires_grad()), /*is_buffer=*/false);
  module.register_parameter("weight", torch::randn({4, 3}, torch::requires_grad()), /*is_buffer=*/false);
  module.define(R"(
    def forward(self, numbers, more):
        x = torch.dropout(torch.embedding(self.table, numbers), 0.5, True)
        y = torch.tanh(torch.matmul(x, self.weight))
        return y, y.sum() + more.sum() * self.weight.sum()
  )");
  const auto path =
      std::filesystem::temp_directory_path() / ("overdrive-" + std::to_string(getpid()) + ".torchscript");
  module.save(path.string());
  return path.string();
}

TEST(TorchScript, IsTrainedUnderBothEnginesWithTheSameBits) {
  const std::string path = write_module();
  const TrainerInfo info = torchscript(path, {parse_input_shape("5x2:11"), parse_input_shape("3")});
  const Comparison result = compare(info, {.steps = 6, .block = 2});
  EXPECT_FALSE(result.difference.has_value());
  EXPECT_GT(result.nodes_per_backward, 5);
  EXPECT_NE(result.stock.losses.front(), result.stock.losses.back());
  const TrainerInfo wrong = torchscript(path, {parse_input_shape("5x2"), parse_input_shape("3")});
  EXPECT_THAT(
      overdrive::test::error_of([&] { compare(wrong, {.steps = 2}); }),
      testing::MatchesRegex("the module cannot run on inputs of these shapes .--input.: .*[Ii]ndices.*"));
  std::filesystem::remove(path);
}

TEST(TorchScript, ShapesAreWrittenWithCrossesAndABound) {
  EXPECT_EQ(parse_input_shape("8x3x32").sizes, (std::vector<int64_t>{8, 3, 32}));
  EXPECT_EQ(parse_input_shape("8x3x32").below, 0);
  EXPECT_EQ(parse_input_shape("16x128:65").below, 65);
  for (const char* bad : {"", "8x", "x8", "8,3", "0x3", "-1", "8:", "8:x", "8x3:1:2", "8 x 3"}) {
    EXPECT_THROW(parse_input_shape(bad), c10::Error) << bad;
  }
}

}  // namespace
