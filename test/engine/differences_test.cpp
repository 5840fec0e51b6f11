// Where we differ from stock on purpose: each row of docs/differences.md names a test, here or beside, which
// shows what stock does and what we do.
#include "test/engine/differences_fixture.h"

namespace {

using namespace overdrive::test;

void nest(int depth, const std::function<void()>& at_the_bottom) {
  run(make_body([&, depth](variable_list&&) -> variable_list {
    depth == 0 ? at_the_bottom() : nest(depth - 1, at_the_bottom);
    return {};
  }));
}

TEST(Differences, ADeepNestStaysOnItsThread) {
  const auto thread_at_the_bottom = [] {
    std::thread::id id;
    nest(100, [&] { id = std::this_thread::get_id(); });
    return id == std::this_thread::get_id();
  };
  on_stock([&] { EXPECT_FALSE(thread_at_the_bottom()); });
  on_ours([&] { EXPECT_TRUE(thread_at_the_bottom()); });
}

TEST(Differences, AFailedBackwardLetsGoOfItsGradientsAtOnce) {
  // A node fails while another, with a gradient waiting for it, is ready.
  const auto gradient_survives = [] {
    auto late = make_body([](variable_list&&) -> variable_list { return {}; });
    auto fails = make_body([](variable_list&&) -> variable_list { throw std::runtime_error("x"); });
    late->set_sequence_nr(1);
    fails->set_sequence_nr(2);
    c10::weak_intrusive_ptr<c10::TensorImpl> watched(torch::ones({1}).getIntrusivePtr());
    auto root = make_body([&](variable_list&&) -> variable_list {
      auto gradient = torch::ones({1});
      watched = c10::weak_intrusive_ptr<c10::TensorImpl>(gradient.getIntrusivePtr());
      return {std::move(gradient), torch::ones({1})};
    });
    root->set_sequence_nr(3);
    root->set_next_edges({Edge(late, 0), Edge(fails, 0)});
    EXPECT_THROW(run(root), std::runtime_error);
    return !watched.expired();
  };
  on_stock([&] { EXPECT_TRUE(gradient_survives()); });
  on_ours([&] { EXPECT_FALSE(gradient_survives()); });
}

TEST(Differences, AnErrorThatIsNoExceptionLeavesTheThreadAsItWas) {
  // Afterwards stock takes the thread for one that is inside a backward for ever; with us the next
  // backward is an outermost one again, and its final callbacks run.
  on_ours([] {
    auto fails = make_body([](variable_list&&) -> variable_list { throw 42; });
    bool called = false;
    auto queues = make_body([&](variable_list&&) -> variable_list {
      Engine::get_default_engine().queue_callback([&] { called = true; });
      throw 42;
    });
    EXPECT_THROW(run(fails), int);
    EXPECT_THROW(run(queues), int);
    EXPECT_FALSE(called);
    EXPECT_EQ(get_current_graph_task_id(), -1);
    EXPECT_TRUE(GradMode::is_enabled());
    run(make_body([&](variable_list&&) -> variable_list {
      Engine::get_default_engine().queue_callback([&] { called = true; });
      return {};
    }));
    EXPECT_TRUE(called);
  });
}

TEST(Differences, WarningsBeforeAnErrorThatIsNoExceptionAreNotLost) {
  struct Counter : c10::WarningHandler {
    void process(const c10::Warning&) override { ++count; }
    int count = 0;
  };
  const auto warnings_seen = [] {
    Counter counter;
    c10::WarningUtils::WarningHandlerGuard guard(&counter);
    auto node = make_body([](variable_list&&) -> variable_list {
      TORCH_WARN("before the error");
      throw 42;
    });
    EXPECT_THROW(run(node), int);
    return counter.count;
  };
  on_stock([&] { EXPECT_EQ(warnings_seen(), 0); });
  on_ours([&] { EXPECT_EQ(warnings_seen(), 1); });
  on_ours([&] { EXPECT_EQ(warnings_seen(), 1); }, {.exact = overdrive::engine::Exact::kAlways});
}

TEST(Differences, NestedBackwardsNumberTheirTasksFromTwoToThe30) {
  int inner = 0;
  const auto ids = [&] { nest(1, [&] { inner = get_current_graph_task_id(); }); };
  on_stock(ids);
  EXPECT_LT(inner, 1 << 30);
  on_ours(ids);
  EXPECT_GE(inner, 1 << 30);
}

TEST(Differences, ABackwardThatBeginsNowhereIsAnError) {
  on_ours([] {  // stock reads a null pointer
    EXPECT_THROW(Engine::get_default_engine().execute({Edge()}, {torch::ones({1})}, false, false, true),
                 c10::Error);
  });
}

TEST(Differences, AnOutputWithoutANodeIsAnError) {
  on_ours([] {  // stock reads a null pointer
    auto root = make_body([](variable_list&&) -> variable_list { return {}; });
    EXPECT_THROW(Engine::get_default_engine().execute({Edge(root, 0)}, {torch::ones({1})}, false, false, false,
                                                      {Edge()}),
                 c10::Error);
    run(root);  // nothing is left of the refused call
  });
}

TEST(Differences, AnEdgeToAnInputThatIsNotThereIsAnError) {
  on_ours([] {  // stock reads past the end of a list
    auto target = make_body([](variable_list&&) -> variable_list { return {}; });
    auto root = make_body([](variable_list&&) -> variable_list { return {torch::ones({1})}; });
    root->add_next_edge(Edge(target, 1));
    try {
      run(root);
      FAIL() << "nothing was thrown";
    } catch (const c10::Error& error) {
      EXPECT_EQ(error.msg(),
                "edge 0 leads to input 1 of Body, which has 1 inputs. Was add_input_metadata() forgotten?");
    }
  });
}

// {root} --> {target}, and a neighbour whose place lies behind the target's.
TEST(Differences, AnEdgeToAnInputThatAHookAddedIsAnError) {
  on_ours([] {  // stock passes the gradient on where none has arrived before, and else fails an assertion
    const auto nothing = [](variable_list&&) -> variable_list { return {}; };
    const auto target = make_body(nothing), neighbour = make_body(nothing);
    Node* changed = nullptr;
    const auto root = make_body([&](variable_list&&) -> variable_list {
      target->add_input_metadata(torch::ones({1}));
      changed->next_edges()[0] = Edge(target, 1);
      return {torch::ones({1}), torch::ones({1})};
    });
    changed = root.get();
    root->add_next_edge(Edge(target, 0));
    root->add_next_edge(Edge(neighbour, 0));
    try {
      run(root);
      FAIL() << "nothing was thrown";
    } catch (const c10::Error& error) {
      EXPECT_EQ(
          error.msg(),
          "a gradient goes to input 1 of Body, which had 1 inputs when the backward began. A hook must not "
          "lead an edge to an input that it added.");
    }
  });
}

TEST(Differences, SeveralRootsWithAnUndefinedGradientAreAnError) {
  on_ours([] {  // stock ends the process
    auto x = torch::ones({2}, torch::requires_grad());
    const auto edge = impl::gradient_edge(x * 2);
    EXPECT_THROW(Engine::get_default_engine().execute({edge, edge}, {torch::ones({2}), {}}, false, false, true),
                 c10::Error);
  });
}

TEST(Differences, NoPlaceInAPrunedBackwardIsValidForCheckpoints) {
  const auto is_valid_in_the_hook_of_a_captured_leaf = [] {
    auto x = torch::ones({2}, torch::requires_grad());
    bool valid = false;
    x.register_hook([&](const torch::Tensor&) { valid = Engine::get_default_engine().is_checkpoint_valid(); });
    grad({(x * 2).sum()}, {x});
    return valid;
  };
  on_stock([&] { EXPECT_TRUE(is_valid_in_the_hook_of_a_captured_leaf()); });
  on_ours([&] { EXPECT_FALSE(is_valid_in_the_hook_of_a_captured_leaf()); });
}

TEST(Differences, WithExactAlwaysADeepNestMovesToThreadsThatEndWithIt) {
  overdrive::Options threads;
  threads.exact = overdrive::engine::Exact::kAlways;
  overdrive::reset_stats();
  on_ours(
      [] {
        std::thread::id bottom;
        nest(20000, [&] { bottom = std::this_thread::get_id(); });
        EXPECT_NE(bottom, std::this_thread::get_id());
      },
      threads);
  EXPECT_GT(overdrive::stats().threads, 0u);
  EXPECT_EQ(overdrive::stats().fresh_stacks, 0u);
}

}  // namespace
