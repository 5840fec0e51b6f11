// Calls that are not ours to run: they reach the previous engine unchanged, and are counted.
#include "engine/engine.h"

#include "engine/base/torch_types.h"
#include "engine/host/host_rules.h"
#include "test/support/pch.h"

namespace {

using namespace torch::autograd;

class Forwarding : public testing::Test {
 protected:
  void SetUp() override {
    overdrive::install();
    overdrive::reset_stats();
  }
  void TearDown() override { overdrive::uninstall(); }
};

// What a compiled autograd function was asked for.
struct CompiledCall {
  int calls = 0;
  std::string root;
  bool keep_graph = false;
  bool accumulate_grad = false;
  size_t outputs = 0;
};
CompiledCall last_call;

variable_list compiled(const overdrive::base::NodePtr& root, const GraphTask& task, bool accumulate_grad,
                       const edge_list& outputs) {
  ++last_call.calls;
  last_call.root = root->num_outputs() == 0 ? "none" : root->next_edge(0).function->name();
  last_call.keep_graph = task.keep_graph_;
  last_call.accumulate_grad = accumulate_grad;
  last_call.outputs = outputs.size();
  return {torch::full({2}, 7.0)};
}

struct CompiledAutograd {
  CompiledAutograd() {
    last_call = {};
    Engine::set_compiled_autograd(compiled);
  }
  ~CompiledAutograd() { Engine::set_compiled_autograd(nullptr); }
};

TEST_F(Forwarding, GivesTheWholeCallToCompiledAutogradWhileThatIsOn) {
  auto x = torch::ones({2}, torch::requires_grad());
  auto y = x * 3;
  {
    CompiledAutograd on;
    const auto grads = grad({y}, {x}, {torch::ones({2})}, /*retain_graph=*/true);
    EXPECT_EQ(last_call.calls, 1);
    EXPECT_EQ(last_call.root, "MulBackward1");
    EXPECT_TRUE(last_call.keep_graph);
    EXPECT_FALSE(last_call.accumulate_grad);
    EXPECT_EQ(last_call.outputs, 1u);
    EXPECT_TRUE(torch::equal(grads[0], torch::full({2}, 7.0)));
  }
  EXPECT_EQ(overdrive::stats().forwarded["compiled autograd"], 1u);
  EXPECT_EQ(overdrive::stats().backwards, 0u);
  // And ours again as soon as it is off.
  EXPECT_TRUE(torch::equal(grad({y}, {x}, {torch::ones({2})})[0], torch::full({2}, 3.0)));
  EXPECT_EQ(last_call.calls, 1);
  EXPECT_EQ(overdrive::stats().backwards, 1u);
}

TEST_F(Forwarding, NoticesCompiledAutogradInsideABackward) {
  auto x = torch::ones({2}, torch::requires_grad());
  auto y = x * 3;
  y.register_hook([&](const torch::Tensor&) {
    AutoGradMode grad_mode(true);
    auto inner = torch::ones({2}, torch::requires_grad());
    CompiledAutograd on;
    grad({inner * 2}, {inner}, {torch::ones({2})});
    EXPECT_EQ(last_call.calls, 1);
  });
  y.sum().backward();
  EXPECT_TRUE(torch::equal(x.grad(), torch::full({2}, 3.0)));
}

// Another build of LibTorch may begin the function with other code.
TEST_F(Forwarding, CountsBackwardsThatItRanWithoutKnowingOfCompiledAutograd) {
  using namespace overdrive::engine;
  static constexpr unsigned char kOtherCode[64] = {0x55, 0x48, 0x89, 0xe5};
  EXPECT_EQ(host::variable_loaded_by(kOtherCode), nullptr);
  EXPECT_NE(host::variable_loaded_by(reinterpret_cast<const void*>(&Engine::set_compiled_autograd)), nullptr);
  const auto backward = [] { torch::ones({2}, torch::requires_grad()).sum().backward(); };
  backward();
  EXPECT_EQ(overdrive::stats().compiled_autograd_unknown, 0u);
  host::disregard_compiled_autograd(true);
  backward();
  host::disregard_compiled_autograd(false);
  EXPECT_EQ(overdrive::stats().compiled_autograd_unknown, 1u);
}

TEST_F(Forwarding, LeavesCallsThatStockRefusesToStock) {
  const auto message_of = [](Engine& engine) -> std::string {
    auto x = torch::ones({2}, torch::requires_grad());
    try {
      engine.execute({impl::gradient_edge(x * 2)}, {torch::ones({2})}, false, false, /*accumulate_grad=*/false);
    } catch (const c10::Error& error) {
      return error.msg();
    }
    return "nothing was thrown";
  };
  const std::string ours = message_of(Engine::get_default_engine());
  EXPECT_THAT(ours, testing::HasSubstr("grad requires non-empty inputs."));
  EXPECT_EQ(ours, message_of(Engine::get_base_engine()));
}

// An engine of somebody else's, below ours.
struct Below : Engine {
  ~Below() override { stop(); }
  std::vector<std::string> heard;
  int anomaly = 0, saved = 0;
  void thread_on_exception(const std::shared_ptr<GraphTask>& task, const overdrive::base::NodePtr& node,
                           std::exception& error) override {
    heard.push_back(node->name());
    Engine::thread_on_exception(task, node, error);
  }
  std::unique_ptr<AnomalyMetadata> make_anomaly_metadata() override {
    ++anomaly;
    return Engine::make_anomaly_metadata();
  }
  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    ++saved;
    return nullptr;
  }
};

Below& below() {
  static auto* engine = new Below;
  return *engine;
}

class OverAnotherEngine : public testing::Test {
 protected:
  void SetUp() override {
    set_default_engine_stub([]() -> Engine& { return below(); });
    overdrive::install();
    overdrive::reset_stats();
  }
  void TearDown() override {
    overdrive::uninstall();
    EXPECT_EQ(&Engine::get_default_engine(), &below());
    set_default_engine_stub(&Engine::get_base_engine);
  }
};

TEST_F(OverAnotherEngine, TellsItOfTheNodeThatFailedFramedBareAndNested) {
  auto x = torch::ones({2}, torch::requires_grad());
  auto y = (x * x).sum();
  y.backward();
  EXPECT_THROW(y.backward(), c10::Error);  // a second time: no frame around it
  auto z = x * 2;
  z.register_hook([](const torch::Tensor&) -> torch::Tensor { throw std::runtime_error("hook"); });
  EXPECT_THROW(z.sum().backward(), std::runtime_error);  // framed
  auto outer = x + 2;
  outer.register_hook([&](const torch::Tensor&) { EXPECT_THROW(y.backward(), c10::Error); });
  outer.sum().backward();  // nested
  EXPECT_EQ(below().heard, (std::vector<std::string>{"MulBackward0", "MulBackward1", "MulBackward0"}));
}

TEST_F(OverAnotherEngine, AsksItForAnomalyMetadataAndSavedTensorHooks) {
  const int saved = below().saved;
  auto x = torch::ones({2}, torch::requires_grad());
  DetectAnomalyGuard anomaly;
  (x * x).sum().backward();
  EXPECT_GT(below().saved, saved);
  EXPECT_GT(below().anomaly, 0);
}

}  // namespace
