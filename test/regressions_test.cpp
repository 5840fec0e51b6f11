// A bug leaves a story: what was seen, what was wrong, the smallest graph that shows it. Each of these
// failed before its mend.
#include "engine/engine.h"

#include "test/support/engines.h"
#include "test/support/pch.h"
#include "test/support/typed_node.h"

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Engine;
using torch::autograd::variable_list;

class Regressions : public testing::Test {
  overdrive::ScopedInstall installed_;
};

// Seen: a checkpointed block inside torch::autograd::grad() gave no gradient at all. The nested
// backward, having no hooks, ran without a graph task; its nodes asked the current task, the outer and
// pruned one, what they need not compute, and were told: everything.
struct BackwardInBackward : torch::autograd::Function<BackwardInBackward> {
  static Tensor forward(AutogradContext* context, Tensor a, Tensor b) {
    context->save_for_backward({a, b});
    return a * b;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    torch::AutoGradMode grad_mode(true);
    auto x = saved[0].detach().requires_grad_();
    auto y = saved[1].detach().requires_grad_();
    torch::autograd::backward({x * y}, {gradients[0].detach()});
    return {x.grad(), y.grad()};
  }
};

TEST_F(Regressions, ABackwardInsideAPrunedOneIsNotPrunedByIt) {
  auto a = torch::ones({2, 3}, torch::requires_grad());
  auto z = BackwardInBackward::apply(a * 2, a).sum();
  const auto gradient = torch::autograd::grad({z}, {a})[0];
  ASSERT_TRUE(gradient.defined());
  EXPECT_TRUE(torch::equal(gradient, torch::full({2, 3}, 4.0)));
}

// Seen: on a thread with an unusual dispatch key (a functorch or Python mode) the first backward threw
// "Could not run 'aten::zeros'". The frame's own gradient was made by the dispatcher, in the
// caller's mode.
TEST_F(Regressions, TheFirstBackwardOfAThreadWorksInAnyDispatchMode) {
  struct Nothing : torch::autograd::Node {
    variable_list apply(variable_list&&) override { return {}; }
  };
  auto node = overdrive::test::make_typed_node<Nothing>();
  const auto one = torch::ones({1});
  node->add_input_metadata(one);
  std::thread([&] {
    c10::impl::tls_set_dispatch_key_included(c10::DispatchKey::TESTING_ONLY_GenericMode, true);
    EXPECT_NO_THROW(Engine::get_default_engine().execute({{node, 0}}, {one}, false, false, true));
  }).join();
}

// Seen: backward(create_graph=true) inside a hook did not warn of the reference cycle. A nested backward
// that borrows the outer graph task never passes the place where the host warns.
TEST_F(Regressions, ANestedBackwardThatCreatesAGraphWarns) {
  struct Collect : c10::WarningHandler {
    std::vector<std::string> warnings;
    void process(const c10::Warning& warning) override { warnings.push_back(warning.msg()); }
  } collect;
  c10::WarningUtils::WarningHandlerGuard guard(&collect);
  c10::WarningUtils::WarnAlways always(true);
  auto x = torch::ones({2}, torch::requires_grad());
  auto y = x * 2;
  y.register_hook([](const Tensor&) {
    torch::AutoGradMode grad_mode(true);
    auto inner = torch::ones({1}, torch::requires_grad());
    (inner * inner).backward({}, /*retain_graph=*/true, /*create_graph=*/true);
    inner.mutable_grad() = Tensor();
  });
  y.sum().backward();
  EXPECT_THAT(collect.warnings, testing::Contains(testing::HasSubstr("create_graph=True")));
}

// Seen: one root with an undefined gradient ran the graph with nothing; stock refuses the call.
TEST_F(Regressions, ARootWithoutAGradientIsRefusedAsStockDoes) {
  const auto text = [] {
    try {
      auto x = torch::ones({2}, torch::requires_grad());
      Engine::get_default_engine().execute({torch::autograd::impl::gradient_edge(x.sin())}, {Tensor()}, false,
                                           false, true);
    } catch (const c10::Error& error) {
      return std::string(error.msg());
    }
    return std::string("nothing was thrown");
  };
  // The text is LibTorch's, and is another one in a CUDA build.
  EXPECT_THAT(text(), testing::AllOf(testing::HasSubstr("tensor"),
                                     overdrive::test::on<overdrive::test::StockEngine>(text)));
}

}  // namespace
