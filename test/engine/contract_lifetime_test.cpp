// Who keeps what alive: a node goes when its last owner goes, also during the run, and an
// engine never owns more than stock does.
#include "test/support/caught.h"
#include "test/support/contract.h"
#include "test/support/hooks.h"

namespace overdrive::test {
namespace {

OVERDRIVE_CONTRACT(Lifetime);

// A node that notes when it runs and when it is destroyed.
NodePtr mortal(Timeline& timeline, const std::string& name, edge_list edges) {
  const auto count = edges.size();
  auto node = make_node(name, std::move(edges), [&timeline, name, count](variable_list&& in) {
    timeline.add("run ", name);
    return variable_list(count, in[0]);
  });
  as_function(node).on_destroy = [&timeline, name] { timeline.add("gone ", name); };
  return node;
}

TYPED_TEST(Lifetime, AGraphOfTheCallerOutlivesTheRun) {
  Timeline timeline;
  auto low = mortal(timeline, "low", {});
  auto top = mortal(timeline, "top", {edge(low)});
  run({.roots = {edge(top)}});
  EXPECT_EQ(timeline.events(), (Events{"run top", "run low"}));
}

// {a} --> {b} --> {c}, {a} --> {c}: below a, edges are the only owners.
std::string owned_by_edges() {
  Timeline timeline;
  auto c = mortal(timeline, "c", {});
  auto b = mortal(timeline, "b", {edge(c)});
  NodePtr a;
  a = make_node("a", {edge(b), edge(c)}, [&](variable_list&& in) {
    timeline.add("run a");
    return variable_list(2, in[0]);
  });
  add_pre_hook(b, [raw = b.get(), &timeline](const variable_list& grads) {
    timeline.add("pre b");
    return grads;
  });
  b = nullptr;
  c = nullptr;
  as_function(a).on_release = [&] { timeline.add("release a"); };
  const auto error = message_of([&] { run({.roots = {edge(a)}}); });
  forget_failed_run();
  timeline.add(error);
  a = nullptr;
  timeline.add("end");
  return timeline.text();
}

TYPED_TEST(Lifetime, NodesOwnedByEdgesGoWithTheirOwner) {
  EXPECT_EQ(owned_by_edges(), on<StockEngine>(owned_by_edges));
}

TYPED_TEST(Lifetime, AHookMayDropTheLastOwnerOfTheLoss) {
  const auto scenario = [] {
    Timeline timeline;
    auto x = leaf();
    at::Tensor loss = output_of(mortal(timeline, "loss", {edge(mortal(timeline, "low", {accumulator(x)}))}));
    add_tensor_hook(loss, [&](const at::Tensor& grad) {
      loss = at::Tensor();
      timeline.add("dropped");
      return grad;
    });
    Backward call{.roots = {torch::autograd::impl::gradient_edge(loss)}};
    run(std::move(call));
    timeline.add("end ", value_of(x.grad()));
    return timeline.text();
  };
  EXPECT_EQ(scenario(), on<StockEngine>(scenario));
}

TYPED_TEST(Lifetime, TensorBackwardOnATemporaryLoss) {
  const auto scenario = [] {
    Timeline timeline;
    auto x = leaf(2);
    auto low = mortal(timeline, "low", {accumulator(x)});
    output_of(mortal(timeline, "loss", {edge(low)})).backward();
    low = nullptr;
    timeline.add("end ", value_of(x.grad()));
    return timeline.text();
  };
  EXPECT_EQ(scenario(), on<StockEngine>(scenario));
}

TYPED_TEST(Lifetime, AHookMayDropTheLastOwnerOfASibling) {
  const auto scenario = [] {
    Timeline timeline;
    auto sibling = mortal(timeline, "sibling", {});
    auto child = mortal(timeline, "child", {});
    auto root = mortal(timeline, "root", {edge(sibling), edge(child)});
    auto* raw = root.get();
    sibling = nullptr;
    // child has the higher number: it runs first, and sibling waits with its gradient ready.
    add_pre_hook(child, [&timeline, raw](const variable_list& grads) {
      raw->next_edges()[0] = Edge();
      timeline.add("dropped");
      return grads;
    });
    const auto error = message_of([&] { run({.roots = {edge(root)}, .keep_graph = true}); });
    forget_failed_run();
    timeline.add("end", error);
    return timeline.text();
  };
  EXPECT_EQ(scenario(), on<StockEngine>(scenario));
}

TYPED_TEST(Lifetime, ANodeMayFreeItsOwnEdgesOnRelease) {
  const auto scenario = [] {
    Timeline timeline;
    auto low = mortal(timeline, "low", {});
    auto middle = mortal(timeline, "middle", {edge(low)});
    low = nullptr;
    auto* raw = middle.get();
    as_function(middle).on_will_release = [&timeline] { timeline.add("will release"); };
    add_post_hook(middle, [&timeline, raw](const variable_list& outputs, const variable_list&) {
      timeline.add("edges freed");
      raw->next_edges().clear();
      return variable_list{};
    });
    auto top = mortal(timeline, "top", {edge(middle)});
    const auto error = message_of([&] { run({.roots = {edge(top)}}); });
    forget_failed_run();
    timeline.add("end", error);
    return timeline.text();
  };
  EXPECT_EQ(scenario(), on<StockEngine>(scenario));
}

TYPED_TEST(Lifetime, AHookThatAddsAnEdgeMakesAnUnknownDependency) {
  const auto scenario = [] {
    Timeline timeline;
    auto stranger = make_node("Stranger", {});
    auto node = make_node("node", {});
    auto* raw = node.get();
    add_post_hook(node, [&, raw](const variable_list&, const variable_list&) {
      raw->next_edges().push_back(edge(stranger));
      return variable_list{one()};
    });
    const auto error = message_of([&] { run({.roots = {edge(node)}}); });
    forget_failed_run();
    return error.message;
  };
  EXPECT_EQ(scenario(), "dependency not found for Stranger");
}

TYPED_TEST(Lifetime, AHookMayExchangeAnEdgeForAKnownNodeAsInStock) {
  const auto scenario = [] {
    Timeline timeline;
    auto a = mortal(timeline, "a", {});
    auto b = mortal(timeline, "b", {});
    auto node = mortal(timeline, "node", {edge(a)});
    auto root = mortal(timeline, "root", {edge(node), edge(a), edge(b)});
    auto* raw = node.get();
    add_post_hook(node, [&, raw](const variable_list& outputs, const variable_list&) {
      raw->next_edges()[0] = edge(b);
      return outputs;
    });
    const auto error = message_of([&] { run({.roots = {edge(root)}}); });
    forget_failed_run();
    timeline.add("end ", error);
    return timeline.text();
  };
  EXPECT_EQ(scenario(), on<StockEngine>(scenario));
}

// A chain of nodes that nobody owns but the run: order of bodies and destructors.
std::string chain_owned_by_the_run(bool keep_graph) {
  Timeline timeline;
  NodePtr node;
  for (int i = 0; i < 5; ++i) {
    edge_list edges;
    if (node) edges.push_back(edge(node));
    node = mortal(timeline, "n" + std::to_string(i), std::move(edges));
    // When it is released, the node lets go of what is below, as saved tensors may.
    as_function(node).on_release = [&timeline, i] { timeline.add("release n", i); };
  }
  Backward call{.roots = {edge(node)}, .keep_graph = keep_graph};
  node = nullptr;
  run(std::move(call));
  timeline.add("end");
  return timeline.text();
}

TYPED_TEST(Lifetime, AGraphOwnedByTheRunAloneIsFreedAsInStock) {
  for (const bool keep : {false, true}) {
    const auto scenario = [&] { return chain_owned_by_the_run(keep); };
    EXPECT_EQ(scenario(), on<StockEngine>(scenario));
  }
}

TYPED_TEST(Lifetime, GradientsGoAsSoonAsTheyAreUsed) {
  // Each node checks that the gradient two steps up is gone: memory stays flat.
  const auto scenario = [] {
    Timeline timeline;
    std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> made;
    NodePtr node;
    for (int i = 0; i < 6; ++i) {
      edge_list edges;
      if (node) edges.push_back(edge(node));
      const auto count = edges.size();
      node = make_node("n", std::move(edges), [&, count](variable_list&& in) {
        size_t alive = 0;
        for (auto& weak : made) alive += !weak.expired();
        timeline.add(alive, " alive, use count ", in[0].use_count());
        variable_list out(count);
        for (auto& tensor : out) made.emplace_back((tensor = one()).getIntrusivePtr());
        return out;
      });
    }
    run({.roots = {edge(node)}});
    return timeline.text();
  };
  EXPECT_EQ(scenario(), on<StockEngine>(scenario));
}

TYPED_TEST(Lifetime, SavedTensorsGoNodeByNode) {
  const auto scenario = [] {
    std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> saved;
    Timeline timeline;
    auto x = leaf(1.1);
    auto y = x;
    for (int i = 0; i < 5; ++i) {
      y = y.exp();  // saves its result
      saved.emplace_back(y.getIntrusivePtr());
      add_tensor_hook(y, [&](const at::Tensor& grad) {
        size_t alive = 0;
        for (auto& weak : saved) alive += !weak.expired();
        timeline.add(alive);
        return grad;
      });
    }
    auto loss = y * 1;
    y = at::Tensor();
    loss.backward();
    return timeline.text();
  };
  EXPECT_EQ(scenario(), on<StockEngine>(scenario));
}

TYPED_TEST(Lifetime, RootGradientsOfTheCallerAreNotTouched) {
  auto x = leaf();
  auto seed = one(2);
  auto y = x * 1;
  torch::autograd::backward({y}, {seed}, true);
  torch::autograd::backward({y}, {seed}, true);
  EXPECT_EQ(value_of(seed), 2);
  EXPECT_EQ(value_of(x.grad()), 4);
  EXPECT_NE(x.grad().data_ptr(), seed.data_ptr());
  EXPECT_EQ(seed.use_count(), 1u);
}

}  // namespace
}  // namespace overdrive::test
