// What a trace holds beside nodes: saved tensors, second runs, micro-batches.
#include "checkpoint/checkpoint.h"
#include "checkpoint/pipeline/pipeline.h"
#include "engine/base/auxiliary_span.h"
#include "hooks/hooks.h"
#include "inspect/inspect.h"

#include "test/inspect/trace_reader.h"
#include "test/support/contract.h"
#include "test/support/engines.h"

#include <mutex>

namespace {

using namespace overdrive;
using nlohmann::json;
using test::broken_rule;
using test::TraceOnDisk;
using torch::Tensor;

class AuxiliaryTraces : public testing::Test {
 protected:
  // That `inner` lies inside a slice of this name on its thread.
  void expect_inside(const json& inner, const std::string& outer) const {
    const double begin = inner["ts"];
    for (const auto& slice : file_.slices()) {
      if (slice["name"] == outer && slice["tid"] == inner["tid"] &&
          slice["ts"].get<double>() <= begin + 0.0015 &&
          begin <= slice["ts"].get<double>() + slice["dur"].get<double>())
        return;
    }
    ADD_FAILURE() << inner.dump() << " is in no " << outer;
  }

  const ScopedInstall engine_;
  TraceOnDisk file_{testing::UnitTest::GetInstance()->current_test_info()->name()};
  const Tensor x_ = torch::ones({64}, torch::requires_grad());
};

TEST_F(AuxiliaryTraces, ShowWhereATensorIsPackedAndUnpacked) {
  {
    Trace trace(file_.path);
    Tensor y;
    {
      const SavedTensorHooksGuard scope(hooks::quantise({.min_bytes = 0}));
      y = x_.exp();
    }
    y.sum().backward();
  }
  EXPECT_EQ(broken_rule(file_), "");
  const auto packs = file_.slices({"pack"}), unpacks = file_.slices({"unpack"});
  ASSERT_EQ(packs.size(), 1u);
  ASSERT_EQ(unpacks.size(), 1u);
  for (const json& event : {packs[0], unpacks[0]}) {
    EXPECT_EQ(event["name"], hooks::quantise()->name());
    EXPECT_EQ(event["args"]["bytes"], 64 * 4);
    EXPECT_LT(event["args"]["packed"], 64 * 4);
    EXPECT_GE(event["args"]["packed"], 64);
    EXPECT_FALSE(event.contains("bind_id"));
  }
  expect_inside(packs[0], "aten::exp");
  expect_inside(unpacks[0], "ExpBackward0");
}

// Copies; tells when the fetching thread is done with the last.
class Copies : public hooks::SavedTensorHooks {
 public:
  hooks::Packed pack(const Tensor& tensor, const hooks::SaveInfo&) override {
    return {.tensors = {tensor.clone()}, .state = {}};
  }
  Tensor unpack(hooks::Packed& packed, const hooks::UnpackInfo&) override { return packed.tensors[0].clone(); }
  std::optional<hooks::Schedule> schedule() const override { return hooks::Schedule{.window_tensors = 0}; }
  std::string name() const override { return "copies"; }
};

TEST_F(AuxiliaryTraces, DrawAnArrowFromAFetchAheadToTheNodeThatTakesTheTensor) {
  {
    Trace trace(file_.path);
    Tensor y;
    {
      const SavedTensorHooksGuard scope(std::make_shared<Copies>(), {.share = false});
      y = x_.exp().sin().cos();
    }
    reset_stats();
    const Tensor loss = y.sum();
    // Before the first node that asks. The fetches are known to come; each node waits for its own.
    loss.register_hook([](const Tensor&) {
      while (stats().ahead_bytes == 0) std::this_thread::yield();
    });
    loss.backward();
  }
  EXPECT_EQ(broken_rule(file_), "");
  std::map<std::string, json> fetched;
  for (const json& fetch : file_.slices({"fetch"})) {
    EXPECT_EQ(fetch["name"], "copies");
    EXPECT_TRUE(fetch.value("flow_out", false));
    EXPECT_TRUE(fetched.emplace(fetch["bind_id"], fetch).second) << "a number twice";
  }
  size_t taken = 0;
  for (const json& unpack : file_.slices({"unpack"})) {
    if (!unpack.value("flow_in", false)) continue;
    ++taken;
    ASSERT_TRUE(fetched.contains(unpack["bind_id"]));
    const json& fetch = fetched[unpack["bind_id"]];
    EXPECT_NE(fetch["tid"], unpack["tid"]);
    EXPECT_LE(fetch["ts"].get<double>(), unpack["ts"].get<double>() + unpack["dur"].get<double>());
    EXPECT_EQ(unpack["args"]["bytes"], 64 * 4);
  }
  EXPECT_GE(taken, 1u);
  EXPECT_EQ(taken, stats().ahead_hits + stats().ahead_waits);
}

TEST_F(AuxiliaryTraces, ShowASecondRunInsideTheNodeThatAsksForIt) {
  const auto block = [](const Tensor& t) { return t.exp().sin(); };
  {
    Trace trace(file_.path);
    for (const auto form : {CheckpointForm::kEarly, CheckpointForm::kOnDemand})
      checkpointed({.form = form, .name = "block"}, block, x_).sum().backward();
  }
  EXPECT_EQ(broken_rule(file_), "");
  const auto runs = file_.slices({"recompute"});
  ASSERT_EQ(runs.size(), 2u);
  for (const json& run : runs) EXPECT_EQ(run["name"], "block");
  EXPECT_NE(runs[0]["args"]["number"], runs[1]["args"]["number"]);
  expect_inside(runs[0], "Recompute");
  expect_inside(runs[1], "SinBackward0");
}

TEST_F(AuxiliaryTraces, ShowTheMicroBatchesOfAPipeline) {
  const checkpoint::Layer layer = [](const Tensor& t) { return t.sin(); };
  const checkpoint::Stage stage{.layers = {layer}, .parameters = {}};
  const checkpoint::Pipeline pipeline({stage, stage}, {.chunks = 2});
  {
    Trace trace(file_.path);
    pipeline.forward(x_).sum().backward();
  }
  EXPECT_EQ(broken_rule(file_), "");
  std::vector<std::string> parts;
  for (const json& part : file_.slices({"micro-batch"}))
    parts.push_back(part["name"].get<std::string>() + " " + part["args"]["number"].dump());
  EXPECT_EQ(parts, (std::vector<std::string>{"stage 0 0", "stage 1 0", "stage 0 1", "stage 1 1"}));
  EXPECT_EQ(file_.slices({"recompute"}).size(), 2u);  // the first micro-batch in both stages
}

TEST_F(AuxiliaryTraces, TellOfAnErrorInTheWork) {
  const hooks::HooksPtr fails = hooks::make_hooks(
      [](const Tensor& tensor, const hooks::SaveInfo&) { return hooks::Packed::of(tensor.clone()); },
      [](hooks::Packed&, const hooks::UnpackInfo&) -> Tensor { throw std::out_of_range("no"); });
  {
    Trace trace(file_.path);
    Tensor y;
    {
      const SavedTensorHooksGuard scope(fails);
      y = x_.exp().sum();
    }
    EXPECT_THROW(y.backward(), std::out_of_range);
  }
  EXPECT_EQ(broken_rule(file_), "");
  EXPECT_EQ(file_.slices({"unpack"}).at(0)["args"]["error"], 1);
  EXPECT_FALSE(file_.slices({"pack"}).at(0)["args"].contains("error"));
}

TEST_F(AuxiliaryTraces, HearOfNothingWhenNoneIsOpen) {
  { Trace trace(file_.path); }
  EXPECT_EQ(base::auxiliary_span_listener.load(), nullptr);
}

}  // namespace
