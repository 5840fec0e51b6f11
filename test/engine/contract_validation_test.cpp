// What an engine checks before it lets a gradient through, and the exact words it uses.
#include "test/support/caught.h"
#include "test/support/contract.h"
#include "test/support/hooks.h"
#include "test/support/typed_node.h"

namespace overdrive::test {
namespace {

OVERDRIVE_CONTRACT(Validation);

// A node "Bad" hands `grad` to a node whose input looks like `like`.
std::string hand_over(const at::Tensor& grad, const at::Tensor& like) {
  std::string got = "nothing";
  auto sink = make_node(
      "sink", {},
      [&](variable_list&& in) {
        std::ostringstream text;
        text << in[0].sizes() << " " << in[0].dtype() << " " << in[0].layout() << " sum " << value_of(in[0]);
        got = text.str();
        return variable_list{};
      },
      like);
  auto bad = make_node("Bad", {edge(sink)}, [&](variable_list&&) { return variable_list{grad}; });
  const auto error = message_of([&] { run({.roots = {edge(bad)}}); });
  return error.type.empty() ? got : error.type + ": " + error.message;
}

TYPED_TEST(Validation, AnExpandedShapeIsSummedBack) {
  EXPECT_EQ(hand_over(torch::ones({2, 3}), torch::ones({1, 3})), "[1, 3] float Strided sum 6");
  EXPECT_EQ(hand_over(torch::ones({4, 2, 3}), torch::ones({2, 1})), "[2, 1] float Strided sum 24");
  EXPECT_EQ(hand_over(torch::ones({5}), torch::ones({})), "[] float Strided sum 5");
}

TYPED_TEST(Validation, AShapeThatDoesNotFitIsAnError) {
  EXPECT_EQ(hand_over(torch::ones({2}), torch::ones({3})),
            "c10::Error: Function Bad returned an invalid gradient at index 0 - got [2] but expected shape "
            "compatible with [3]");
}

TYPED_TEST(Validation, AnotherFloatingTypeIsCast) {
  EXPECT_EQ(hand_over(torch::ones({2}, torch::kDouble), torch::ones({2})), "[2] float Strided sum 2");
  EXPECT_EQ(hand_over(torch::ones({2}), torch::ones({2}, torch::kHalf)), "[2] c10::Half Strided sum 2");
}

TYPED_TEST(Validation, AnotherDeviceIsAnError) {
  EXPECT_EQ(
      hand_over(torch::ones({2}, torch::kMeta), torch::ones({2})),
      "c10::Error: Function Bad returned an invalid gradient at index 0 - expected device cpu but got meta");
}

TYPED_TEST(Validation, EveryPairOfKindsIsJudgedAsInStock) {
  const std::vector<std::pair<const char*, at::Tensor>> kinds = {
      {"dense", torch::ones({2, 2})},
      {"scalar", torch::ones({})},
      {"double", torch::ones({2, 2}, torch::kDouble)},
      {"half", torch::ones({2, 2}, torch::kHalf)},
      {"complex", torch::ones({2, 2}, torch::kComplexFloat)},
      {"long", torch::ones({2, 2}, torch::kLong)},
      {"bool", torch::ones({2, 2}, torch::kBool)},
      {"coo", torch::ones({2, 2}).to_sparse()},
      {"csr", torch::ones({2, 2}).to_sparse_csr()},
      {"meta", torch::ones({2, 2}, torch::kMeta)},
      {"wide", torch::ones({3, 2, 2})},
      {"empty", torch::ones({0})},
      {"nested", at::_nested_tensor_from_tensor_list({torch::ones({2}), torch::ones({3})})},
      {"mkldnn", torch::ones({2, 2}).to_mkldnn()},
      {"undefined", at::Tensor()}};
  for (const auto& [grad_name, grad] : kinds) {
    for (const auto& [like_name, like] : kinds) {
      if (!like.defined()) continue;  // "like an undefined tensor" is no input metadata at all
      const auto scenario = [&, g = grad, l = like] {
        std::string type = "nothing";
        auto sink = make_node(
            "sink", {},
            [&](variable_list&& in) {
              std::ostringstream text;
              in[0].defined() ? text << in[0].toString() << in[0].dim() : text << "undefined";
              type = text.str();
              return variable_list{};
            },
            l);
        auto bad = make_node("Bad", {edge(sink)}, [&](variable_list&&) { return variable_list{g}; });
        const auto error = message_of([&] { run({.roots = {edge(bad)}}); });
        return type + " " + error.type + error.message;
      };
      EXPECT_EQ(scenario(), on<StockEngine>(scenario)) << grad_name << " for " << like_name;
    }
  }
}

TYPED_TEST(Validation, GradDtypeDecidesWhatAGradientIsCastTo) {
  const auto with_grad_dtype = [](std::optional<at::ScalarType> wanted, at::ScalarType given) {
    const auto like = torch::ones({2});
    std::string got = "nothing";
    auto sink = base::make_node<FunctionNode>("sink", edge_list{}, [&](variable_list&& in) {
      got = c10::toString(in[0].scalar_type());
      return variable_list{};
    });
    sink->add_input_metadata(like.options(), like.sym_sizes(), false, false, wanted);
    auto bad = make_node("Bad", {edge(sink)}, [&](variable_list&&) { return variable_list{like.to(given)}; });
    const auto error = message_of([&] { run({.roots = {edge(bad)}}); });
    return got + error.message;
  };
  for (const auto given : {at::kFloat, at::kDouble, at::kHalf}) {
    EXPECT_EQ(with_grad_dtype(at::kDouble, given), "Double");
    EXPECT_EQ(with_grad_dtype(at::kFloat, given), "Float");
    EXPECT_EQ(with_grad_dtype(std::nullopt, given), c10::toString(given)) << "nothing wanted, nothing cast";
  }
}

TYPED_TEST(Validation, TooFewOrTooManyGradientsAreAnError) {
  const auto with_outputs = [](size_t count) {
    auto x = leaf(), y = leaf();
    auto node = make_node("Bad", {accumulator(x), accumulator(y)},
                          [count](variable_list&&) { return variable_list(count, one()); });
    return message_of([&] { run({.roots = {edge(node)}}); });
  };
  EXPECT_EQ(
      with_outputs(1),
      (Caught{"c10::Error", "Function Bad returned an invalid number of gradients - expected 2, but got 1"}));
  EXPECT_EQ(
      with_outputs(3),
      (Caught{"c10::Error", "Function Bad returned an invalid number of gradients - expected 2, but got 3"}));
  EXPECT_EQ(with_outputs(2), Caught{});
}

struct TooMany : torch::autograd::Function<TooMany> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x * 2; }
  static variable_list backward(torch::autograd::AutogradContext*, variable_list grads) {
    return {grads[0], grads[0]};
  }
};

TYPED_TEST(Validation, ACustomFunctionWithTooManyGradientsIsAnError) {
  auto y = TooMany::apply(leaf());
  const auto error = message_of([&] { y.backward(); });
  EXPECT_EQ(error.type, "c10::Error");
  EXPECT_THAT(error.message,
              testing::HasSubstr("returned an incorrect number of gradients (expected 1, got 2)"));
}

TYPED_TEST(Validation, ErrorsOfRootsHaveNoPrefix) {
  auto x = leaf();
  auto y = x * torch::ones({3});
  EXPECT_EQ(message_of([&] { y.backward(torch::ones({2})); }),
            on<StockEngine>([&] { return message_of([&] { y.backward(torch::ones({2})); }); }));
  const auto wrong = [&] {
    return message_of([&] { run({.roots = {{y.grad_fn(), 0}}, .grads = {torch::ones({2})}}); });
  };
  EXPECT_EQ(wrong(), (Caught{"c10::Error",
                             "invalid gradient at index 0 - got [2] but expected shape compatible "
                             "with [3]"}));
  EXPECT_EQ(message_of([&] {
              Engine::get_default_engine().execute({{y.grad_fn(), 0}}, {}, false, false, true, {});
            }).message,
            "invalid number of gradients - expected 1, but got 0");
}

TYPED_TEST(Validation, TheGradientOfARootIsCastAndSummedToo) {
  auto x = torch::ones({3}, torch::requires_grad());
  auto y = x * 2;
  run({.roots = {{y.grad_fn(), 0}}, .grads = {torch::ones({4, 3}, torch::kDouble)}});
  EXPECT_TRUE(torch::equal(x.grad(), torch::full({3}, 8.0f)));
}

TYPED_TEST(Validation, AnEdgeAddedDuringTheRunIsAnUnknownDependency) {
  auto stranger = make_node("Stranger", {});
  NodePtr node;
  node = make_node("node", {}, [&](variable_list&& in) {
    node->next_edges().push_back(edge(stranger));
    return variable_list{in[0]};
  });
  const auto error = message_of([&] { run({.roots = {edge(node)}}); });
  EXPECT_EQ(error.type, "c10::Error");
  EXPECT_EQ(error.message, "dependency not found for Stranger");
  node = nullptr;
}

TYPED_TEST(Validation, ANodeWithoutBackwardSaysSo) {
  const auto scenario = [] {
    auto x = leaf();
    auto y = at::_to_copy(x, torch::kFloat).relu();
    auto error = overdrive::test::make_typed_node<torch::autograd::Error>("this op has no derivative",
                                                                          edge_list{accumulator(x)});
    error->add_input_metadata(y);
    return message_of([&] { run({.roots = {Edge(error, 0)}}); });
  };
  EXPECT_EQ(scenario().message, "this op has no derivative");
  EXPECT_EQ(scenario(), on<StockEngine>(scenario));
}

TYPED_TEST(Validation, AnUnfinishedGraphCannotComputeGradientsForSomeFunctions) {
  // A ring: neither node ever gets all its gradients.
  //   {root} --> a <--> b
  auto a = make_node("a", {});
  auto b = make_node("b", {edge(a)});
  as_function(a).next_edges().push_back(edge(b));
  auto root = make_node("root", {edge(a)});
  const auto error = message_of([&] { run({.roots = {edge(root)}}); });
  EXPECT_EQ(error.type, "c10::Error");
  EXPECT_EQ(error.message, "could not compute gradients for some functions");
  as_function(a).next_edges().clear();
}

TYPED_TEST(Validation, AHookMustKeepTheShapeOfItsGradient) {
  const auto scenario = [] {
    auto x = torch::ones({2}, torch::requires_grad());
    auto y = x * 2;
    add_tensor_hook(y, [](const at::Tensor&) { return torch::ones({3}); });
    return message_of([&] { y.sum().backward(); });
  };
  EXPECT_EQ(scenario().type, "c10::Error");
  EXPECT_EQ(scenario(), on<StockEngine>(scenario));
}

TYPED_TEST(Validation, AGradientMayBeUndefinedAnywhere) {
  auto x = leaf(), y = leaf();
  auto node = make_node("node", {accumulator(x), accumulator(y)}, [](variable_list&&) {
    return variable_list{at::Tensor(), one(2)};
  });
  run({.roots = {edge(node)}});
  EXPECT_FALSE(x.grad().defined());
  EXPECT_EQ(value_of(y.grad()), 2);
}

}  // namespace
}  // namespace overdrive::test
