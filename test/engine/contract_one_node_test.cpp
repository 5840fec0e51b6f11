// What happens around one node, in which order: captures, tensor hooks, retains_grad,
// pre-hooks, apply, post-hooks. Walks every set of hooks under every role of the node.
#include "test/support/contract.h"
#include "test/support/hooks.h"

namespace overdrive::test {
namespace {

OVERDRIVE_CONTRACT(OneNode);

// Hooks of the node under test, and its role. Every hook changes the value, so that the
// order shows in the numbers too.
enum Hook { kTensor = 1, kRetains = 2, kPre = 4, kPost = 8, kAll = 16 };
struct Role {
  bool captured, needed, root, twice;
};

GradFunction scale(Timeline& timeline, const std::string& label, double factor) {
  return [&timeline, label, factor](const at::Tensor& grad) {
    timeline.add(label, " ", value_of(grad));
    return grad * factor;
  };
}
PreFunction scale_all(Timeline& timeline, const std::string& label, double factor) {
  return [&timeline, label, factor](const variable_list& grads) {
    variable_list result;
    for (const auto& grad : grads) {
      timeline.add(label, " ", value_of(grad));
      result.push_back(grad.defined() ? grad * factor : grad);
    }
    return result;
  };
}

std::string walk(int hooks, Role role) {
  // {x} --*2--> {a} --*3--> {b}      a's node is the one under test
  Timeline timeline;
  auto x = leaf();
  auto a = x * 2;
  auto b = a * 3;
  auto node = a.grad_fn();
  if (hooks & kTensor) add_tensor_hook(a, scale(timeline, "tensor", 2));
  if (hooks & kRetains) a.retain_grad();
  if (hooks & kPre) add_pre_hook(node, scale_all(timeline, "pre", 5));
  if (hooks & kPost) {
    add_post_hook(node, [&](const variable_list& outputs, const variable_list& inputs) {
      timeline.add("post ", value_of(outputs[0]), " from ", inputs.size());
      auto changed = outputs;  // as many as before: stock does not check, and would run past its edges
      if (changed[0].defined()) changed[0] = changed[0] * 7;
      return changed;
    });
  }
  variable_list wanted;
  for (int i = 0; i < (role.twice ? 2 : 1); ++i) {
    if (role.captured) wanted.push_back(a);
    if (role.needed) wanted.push_back(x);
  }
  if (wanted.empty()) {
    (role.root ? a : b).backward();
    timeline.add("x.grad ", value_of(x.grad()));
  } else {
    const auto root = role.root ? a : b;
    for (const auto& grad : torch::autograd::grad({root}, wanted, {}, {}, false, true)) {
      timeline.add("result ", value_of(grad));
    }
  }
  if (hooks & kRetains) timeline.add("retained ", value_of(a.grad()));
  return timeline.text();
}

TYPED_TEST(OneNode, EverySetOfHooksUnderEveryRoleGoesAsInStock) {
  for (int hooks = 0; hooks < kAll; ++hooks) {
    for (int bits = 0; bits < 16; ++bits) {
      const Role role{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0};
      EXPECT_EQ(walk(hooks, role), on<StockEngine>([&] { return walk(hooks, role); }))
          << "hooks " << hooks << " captured " << role.captured << " needed " << role.needed << " root "
          << role.root << " twice " << role.twice;
    }
  }
}

TYPED_TEST(OneNode, RunsItsHooksInThisOrder) {
  Timeline timeline;
  auto node = make_node("node", {}, [&](variable_list&& in) {
    timeline.add("apply ", value_of(in[0]));
    return variable_list{};
  });
  add_post_hook(node, note_outputs(timeline, "post"));
  add_pre_hook(node, scale_all(timeline, "pre", 2));
  add_retains_grad_hook(node, 0, scale_all(timeline, "retains", 3));
  add_tensor_pre_hook(node, scale_all(timeline, "tensor", 5));
  as_function(node).on_will_release = [&] { timeline.add("will release"); };
  as_function(node).on_release = [&] { timeline.add("release"); };
  run({.roots = {edge(node)}});
  EXPECT_EQ(timeline.events(),
            (Events{"tensor 1", "retains 5", "pre 15", "will release", "apply 30", "post from 30", "release"}));
}

TYPED_TEST(OneNode, ACaptureOfANeededNodeIsTakenBeforeItsTensorHooks) {
  auto x = leaf();
  auto a = x * 2;
  auto b = a * 3;
  add_tensor_hook(a, [](const at::Tensor& grad) { return grad * 10; });
  EXPECT_EQ(value_of(torch::autograd::grad({b}, {a}, {}, true)[0]), 30);
  const auto both = torch::autograd::grad({b}, {a, x});
  EXPECT_EQ(value_of(both[0]), 3);
  EXPECT_EQ(value_of(both[1]), 60);
}

TYPED_TEST(OneNode, APostHookAddedDuringApplyGetsNoInputs) {
  Timeline timeline;
  NodePtr node;
  node = make_node("node", {}, [&](variable_list&&) {
    add_post_hook(node, note_outputs(timeline, "late"));
    return variable_list{};
  });
  run({.roots = {edge(node)}});
  EXPECT_EQ(timeline.events(), (Events{"late from"}));
  node = nullptr;
}

TYPED_TEST(OneNode, AnInputAddedDuringTheRunIsUndefined) {
  // {top} --> {low}       the hook of the one makes another output of the other
  for (const bool pruned : {false, true}) {
    auto x = leaf();
    size_t inputs = 0;
    auto low = make_node("low", {accumulator(x)}, [&](variable_list&& in) {
      inputs = in.size();
      return variable_list{in[0]};
    });
    auto top = make_node("top", {edge(low)});
    add_pre_hook(top, [&](const variable_list& grads) {
      low->add_input_metadata(one());
      return grads;
    });
    const edge_list outputs = pruned ? edge_list{accumulator(x)} : edge_list{};
    run({.roots = {edge(top)}, .outputs = outputs});
    EXPECT_EQ(inputs, 2u);
    EXPECT_EQ(value_of(x.grad()), 1);
  }
}

TYPED_TEST(OneNode, APreHookAddedDuringATensorHookStillRuns) {
  Timeline timeline;
  auto node = make_node("node", {});
  auto* raw = node.get();
  add_tensor_pre_hook(node, [&, raw](const variable_list& grads) {
    timeline.add("tensor");
    add_pre_hook(raw->getptr(), note_inputs(timeline, "pre"));
    return grads;
  });
  run({.roots = {edge(node)}});
  EXPECT_EQ(timeline.events(), (Events{"tensor", "pre 1"}));
}

// A leaf gets `grad` from a node that owns nothing else of it; true when .grad is that
// very memory.
bool steals(const std::function<void(const at::Tensor& leaf, const NodePtr& accumulate)>& decorate) {
  auto x = leaf();
  auto target = accumulator(x);
  decorate(x, target.function);
  void* produced = nullptr;
  auto root = make_node("root", {target}, [&](variable_list&&) {
    variable_list out{one(4)};
    produced = out[0].data_ptr();
    return out;
  });
  run({.roots = {edge(root)}});
  EXPECT_EQ(value_of(x.grad()), 4);
  return x.grad().data_ptr() == produced;
}

TYPED_TEST(OneNode, AccumulateGradStealsAlthoughPostHooksHoldACopyOfTheInputs) {
  EXPECT_TRUE(steals([](const at::Tensor&, const NodePtr&) {}));
  EXPECT_TRUE(steals([](const at::Tensor&, const NodePtr& accumulate) {
    add_post_hook(accumulate, [](const variable_list& out, const variable_list&) { return out; });
  }));
  EXPECT_TRUE(steals([](const at::Tensor& x, const NodePtr&) {
    add_tensor_hook(x, [](const at::Tensor& grad) { return grad; });
  }));
  at::Tensor kept;
  EXPECT_FALSE(steals([&](const at::Tensor& x, const NodePtr&) {
    add_tensor_hook(x, [&](const at::Tensor& grad) { return kept = grad; });
  }));
  kept.reset();
}

// The same walk for a leaf's AccumulateGrad, which has hooks of its own kind.
std::string walk_leaf(int hooks, bool backward, bool captured, bool twice) {
  Timeline timeline;
  auto x = leaf(), other = leaf();
  auto accumulate = accumulator(x);
  if (hooks & kTensor) add_tensor_hook(x, scale(timeline, "tensor", 2));
  if (hooks & kRetains) set_post_accumulate_hook(x, note_tensor(timeline, "accumulated"));
  if (hooks & kPre) add_pre_hook(accumulate.function, scale_all(timeline, "pre", 5));
  if (hooks & kPost) add_post_hook(accumulate.function, note_outputs(timeline, "post"));
  auto loss = (x * 2) * other;
  variable_list wanted(twice ? 2 : 1, captured ? x : other);
  if (backward) {
    loss.backward({}, false, false, wanted);
  } else {
    for (const auto& grad : torch::autograd::grad({loss}, wanted)) timeline.add("result ", value_of(grad));
  }
  timeline.add("x ", value_of(x.grad()), " other ", value_of(other.grad()));
  return timeline.text();
}

TYPED_TEST(OneNode, EverySetOfHooksOfALeafGoesAsInStock) {
  for (int hooks = 0; hooks < kAll; ++hooks) {
    for (int bits = 0; bits < 8; ++bits) {
      const auto scenario = [&] { return walk_leaf(hooks, bits & 1, bits & 2, bits & 4); };
      EXPECT_EQ(scenario(), on<StockEngine>(scenario)) << "hooks " << hooks << " bits " << bits;
    }
  }
}

}  // namespace
}  // namespace overdrive::test
