// What a node or hook may ask while it runs: the graph task's id, flags, exec info,
// nodes, order, the current node, and whether an output is wanted.
#include "test/support/caught.h"
#include "test/support/contract.h"
#include "test/support/hooks.h"

#include <torch/library.h>

namespace overdrive::test {
namespace {

OVERDRIVE_CONTRACT(Frame);

namespace ag = torch::autograd;

TYPED_TEST(Frame, NothingIsCurrentOutsideABackward) {
  EXPECT_EQ(ag::get_current_graph_task_id(), -1);
  EXPECT_EQ(ag::get_current_graph_task_exec_info(), nullptr);
  EXPECT_EQ(ag::get_current_graph_task_nodes_in_graph(), nullptr);
  EXPECT_EQ(ag::get_current_node(), nullptr);
  EXPECT_TRUE(ag::get_current_graph_task_keep_graph());
}

TYPED_TEST(Frame, EveryNodeAndHookOfABackwardSeesOneTaskId) {
  std::vector<int> ids;
  const auto note = [&] { ids.push_back(ag::get_current_graph_task_id()); };
  for (int round = 0; round < 2; ++round) {
    auto x = leaf();
    add_tensor_hook(x, [&](const at::Tensor& grad) {
      note();
      return grad;
    });
    set_post_accumulate_hook(x, [&](const at::Tensor&) { note(); });
    auto node = make_node("node", {accumulator(x)}, [&](variable_list&& in) {
      note();
      Engine::get_default_engine().queue_callback(note);
      return in;
    });
    run({.roots = {edge(node)}});
  }
  ASSERT_EQ(ids.size(), 8u);
  EXPECT_THAT(std::vector<int>(ids.begin(), ids.begin() + 4), testing::Each(ids[0]));
  EXPECT_THAT(std::vector<int>(ids.begin() + 4, ids.end()), testing::Each(ids[4]));
  EXPECT_GE(ids[0], 0);
  EXPECT_NE(ids[0], ids[4]);
}

TYPED_TEST(Frame, ANestedBackwardHasAnIdOfItsOwn) {
  int outer = -1, inner = -1, after = -1;
  auto nested = make_node("nested", {}, [&](variable_list&&) {
    inner = ag::get_current_graph_task_id();
    return variable_list{};
  });
  auto node = make_node("node", {}, [&](variable_list&&) {
    outer = ag::get_current_graph_task_id();
    run({.roots = {edge(nested)}});
    after = ag::get_current_graph_task_id();
    return variable_list{};
  });
  run({.roots = {edge(node)}});
  EXPECT_NE(outer, inner);
  EXPECT_EQ(outer, after);
  EXPECT_GE(inner, 0);
}

TYPED_TEST(Frame, KeepGraphIsWhatTheCallerAsked) {
  std::vector<bool> seen;
  auto node = make_node("node", {}, [&](variable_list&&) {
    seen.push_back(ag::get_current_graph_task_keep_graph());
    return variable_list{};
  });
  run({.roots = {edge(node)}, .keep_graph = true});
  run({.roots = {edge(node)}, .keep_graph = false});
  EXPECT_EQ(seen, (std::vector<bool>{true, false}));
}

TYPED_TEST(Frame, ANestedBackwardsKeepGraphIsItsOwn) {
  for (const bool keep : {false, true}) {
    std::vector<bool> seen;
    const auto ask = [&](variable_list&&) {
      seen.push_back(ag::get_current_graph_task_keep_graph());
      return variable_list{};
    };
    auto nested = make_node("nested", {}, ask);
    auto node = make_node("node", {}, [&](variable_list&& in) {
      ask(std::move(in));
      run({.roots = {edge(nested)}, .keep_graph = !keep});
      return ask({});
    });
    run({.roots = {edge(node)}, .keep_graph = keep});
    EXPECT_EQ(seen, (std::vector<bool>{keep, !keep, keep}));
  }
}

TYPED_TEST(Frame, NodesInGraphNamesWhatIsReachedFromTheRoots) {
  // {top} --> low --> {x}; a single root is not reached from anything, so it is not named
  const auto named = [](bool two_roots) {
    auto x = leaf();
    auto target = accumulator(x);
    auto low = make_node("low", {target});
    auto stranger = make_node("stranger", {});
    std::string seen;
    NodePtr top;
    top = make_node("top", {edge(low)}, [&](variable_list&& in) {
      const auto& nodes = *ag::get_current_graph_task_nodes_in_graph();
      for (auto* node : {top.get(), low.get(), target.function.get(), stranger.get()}) {
        if (nodes.count(node)) seen += node->name() + " ";
      }
      return in;
    });
    edge_list roots{edge(top)};
    if (two_roots) roots.push_back(edge(low));
    run({.roots = roots});
    top = nullptr;
    return seen;
  };
  EXPECT_EQ(named(false), "low torch::autograd::AccumulateGrad ");
  EXPECT_EQ(named(true), "top low torch::autograd::AccumulateGrad ");
}

TYPED_TEST(Frame, ExecutionOrderIsTheOrderInWhichTheNodesRun) {
  std::vector<Node*> promised;
  std::string ran;
  auto x = leaf();
  const auto pass_on = [&](std::string name, size_t edges) {
    return [&, name, edges](variable_list&& in) {
      if (promised.empty()) promised = ag::get_current_graph_task_execution_order();
      ran += name + " ";
      return variable_list(edges, in[0]);
    };
  };
  // {e} --> c, d;  c --> a, b;  d --> b;  b --> a;  a --> {x}
  auto a = make_node("a", {accumulator(x)}, pass_on("a", 1));
  auto b = make_node("b", {edge(a)}, pass_on("b", 1));
  auto c = make_node("c", {edge(a), edge(b)}, pass_on("c", 2));
  auto d = make_node("d", {edge(b)}, pass_on("d", 1));
  auto e = make_node("e", {edge(c), edge(d)}, pass_on("e", 2));
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);  // or it is refused
  run({.roots = {edge(e)}});
  c10::AutogradState::get_tls_state().set_multithreading_enabled(true);
  std::string order;
  for (auto* node : promised) order += node->name() + " ";
  EXPECT_EQ(ran, "e d c b a ");
  EXPECT_EQ(order, ran + "torch::autograd::AccumulateGrad ");
}

TYPED_TEST(Frame, ExecutionOrderIsRefusedWithMultithreadingOn) {
  const auto scenario = [] {
    Caught error;
    auto node = make_node("node", {}, [&](variable_list&&) {
      error = message_of([] { ag::get_current_graph_task_execution_order(); });
      return variable_list{};
    });
    run({.roots = {edge(node)}});
    return error;
  };
  EXPECT_THAT(scenario().message, testing::HasSubstr("multithreading disabled"));
  EXPECT_EQ(scenario(), on<StockEngine>(scenario));
}

TYPED_TEST(Frame, ExecutionOrderOfAPrunedRunIsWhatStockSays) {
  const auto scenario = [] {
    auto x = leaf(), y = leaf();
    std::string order;
    auto used = make_node("used", {accumulator(x)});
    auto unused = make_node("unused", {accumulator(y)});
    auto node = make_node("node", {edge(used), edge(unused)}, [&](variable_list&& in) {
      for (auto* next : ag::get_current_graph_task_execution_order()) order += next->name() + " ";
      return variable_list(2, in[0]);
    });
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
    const auto error = message_of([&] { ag::grad({output_of(node)}, {x}); });
    c10::AutogradState::get_tls_state().set_multithreading_enabled(true);
    return order + error.message;
  };
  EXPECT_FALSE(scenario().empty());
  EXPECT_EQ(scenario(), on<StockEngine>(scenario));
}

TYPED_TEST(Frame, ANodeLearnsWhichOfItsOutputsAreWanted) {
  auto x = leaf(), y = leaf();
  std::vector<bool> seen;
  NodePtr node;
  node = make_node("node", {accumulator(x), accumulator(y), Edge()}, [&](variable_list&& in) {
    for (size_t i = 0; i < 3; ++i) seen.push_back(node->task_should_compute_output(i));
    return variable_list(3, in[0]);
  });
  auto root = output_of(node);
  ag::grad({root}, {y}, {}, true);
  EXPECT_EQ(seen, (std::vector<bool>{false, true, false}));
  seen.clear();
  root.backward();
  EXPECT_EQ(seen, (std::vector<bool>{true, true, false}));
  node = nullptr;
}

struct Needs : ag::Function<Needs> {
  static at::Tensor forward(ag::AutogradContext*, const at::Tensor& x, const at::Tensor& y) { return x + y; }
  static variable_list backward(ag::AutogradContext* context, variable_list grads) {
    needed = {context->needs_input_grad(0), context->needs_input_grad(1)};
    return {grads[0], grads[0]};
  }
  static inline std::pair<bool, bool> needed;
};

TYPED_TEST(Frame, ACustomFunctionLearnsItThroughNeedsInputGrad) {
  auto x = leaf(), y = leaf();
  auto z = Needs::apply(x, y);
  ag::grad({z}, {x}, {}, true);
  EXPECT_EQ(Needs::needed, std::make_pair(true, false));
  z.backward();
  EXPECT_EQ(Needs::needed, std::make_pair(true, true));
}

TYPED_TEST(Frame, TheCurrentNodeIsTheOneWhoseHooksAndBodyRun) {
  Timeline timeline;
  const auto who = [&] {
    const auto current = ag::get_current_node();
    return current ? current->name() : std::string("none");
  };
  const auto note_pre = [&](const char* label) {
    return [&, label](const variable_list& grads) {
      timeline.add(label, " ", who());
      return grads;
    };
  };
  auto x = leaf();
  add_tensor_hook(x, [&](const at::Tensor& grad) {
    timeline.add("leaf ", who());
    return grad;
  });
  auto low = make_node("low", {accumulator(x)}, [&](variable_list&& in) {
    timeline.add("body ", who());
    Engine::get_default_engine().queue_callback([&] { timeline.add("callback ", who()); });
    return in;
  });
  add_tensor_pre_hook(low, note_pre("tensor"));
  add_pre_hook(low, note_pre("pre"));
  add_post_hook(low, [&](const variable_list& outputs, const variable_list&) {
    timeline.add("post ", who());
    return outputs;
  });
  run({.roots = {edge(make_node("top", {edge(low)}))}});
  EXPECT_EQ(timeline.events(), (Events{"tensor low", "pre low", "body low", "post low",
                                       "leaf torch::autograd::AccumulateGrad", "callback none"}));
}

TYPED_TEST(Frame, TheCurrentNodeComesBackAfterANestedBackward) {
  std::string inner, after;
  auto nested = make_node("nested", {}, [&](variable_list&&) {
    inner = ag::get_current_node()->name();
    return variable_list{};
  });
  auto node = make_node("node", {}, [&](variable_list&&) {
    run({.roots = {edge(nested)}});
    after = ag::get_current_node()->name();
    return variable_list{};
  });
  run({.roots = {edge(node)}});
  EXPECT_EQ(inner, "nested");
  EXPECT_EQ(after, "node");
}

// A mode: while the thread includes this key, every operator comes here first.
constexpr auto kModeKey = c10::DispatchKey::TESTING_ONLY_GenericMode;
Timeline* mode_timeline = nullptr;

void note_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard below(kModeKey);
  const auto node = ag::get_current_node();
  if (node != nullptr) {
    const std::string task = ag::get_current_graph_task_id() >= 0 ? "" : ", without a task";
    mode_timeline->add(op.schema().name(), " in ", node->name(), task);
    Engine::get_default_engine().queue_callback([] { mode_timeline->add("callback"); });
  }
  op.callBoxed(stack);
}

// No hook and no node of the program's own: LibTorch's nodes alone call the mode.
TYPED_TEST(Frame, AModeOfTheProgramSeesTheTaskAndTheNodeOfAPlainGraph) {
  torch::Library library(torch::Library::IMPL, "_", kModeKey, __FILE__, __LINE__);
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&note_operator>());
  Timeline timeline;
  mode_timeline = &timeline;
  auto x = leaf(3);
  auto y = x.exp();
  {
    const c10::impl::IncludeDispatchKeyGuard mode(kModeKey);
    y.backward(one());
  }
  EXPECT_EQ(timeline.events(),
            (Events{"aten::mul in ExpBackward0", "aten::detach in torch::autograd::AccumulateGrad", "callback",
                    "callback"}));
}

class OverdriveFrame : public EngineContract<Overdrive> {};

}  // namespace
}  // namespace overdrive::test
