// Ends a process in one of many ways with the engine installed: exit_program HOW. exit_test.cpp
// runs each; the exit status is kStatus when nothing went wrong on the way out.
#include "engine/engine.h"
#include "hooks/hooks.h"

#include "test/support/pch.h"
#include "test/support/typed_node.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <thread>
#include <utility>
#include <vector>

namespace {

using torch::Tensor;
using torch::autograd::Node;
using torch::autograd::variable_list;

constexpr int kStatus = 7;

Tensor leaf() { return torch::ones({2}, torch::requires_grad()); }

void check(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "failed: %s\n", what);
  std::_Exit(3);
}

void backward() {
  Tensor x = leaf();
  (x * 3).sum().backward();
  check(torch::equal(x.grad(), torch::full({2}, 3.0)), "gradient");
}

void backward_with_hook(void (*hook)()) {
  const torch::AutoGradMode on(true);  // it is off inside a hook
  Tensor x = leaf();
  Tensor y = x * 3;
  y.register_hook([hook](const Tensor&) { hook(); });
  y.sum().backward();
}

// A node that ends the process from its own apply().
struct ExitNode : Node {
  variable_list apply(variable_list&&) override { std::exit(kStatus); }
};

void exit_inside_a_node() {
  auto node = overdrive::test::make_typed_node<ExitNode>();
  const Tensor root = torch::ones({1});
  node->add_input_metadata(root);
  torch::autograd::Engine::get_default_engine().execute({torch::autograd::Edge(node, 0)}, {root}, false, false,
                                                        true, {});
}

// Graphs that live until the process's statics are destroyed, LibTorch's own perhaps before them.
struct LiveGraph {
  Tensor x, loss;
};
LiveGraph live_before_main;
LiveGraph& live_in_function() {
  static LiveGraph graph;
  return graph;
}

void keep(LiveGraph& graph) {
  graph.x = leaf();
  graph.loss = (graph.x * graph.x).sin().sum();
  graph.loss.backward({}, /*retain_graph=*/true);
}

void leave_graphs_in_statics() {
  keep(live_before_main);
  keep(live_in_function());
  thread_local LiveGraph of_this_thread;
  keep(of_this_thread);
}

// A backward that is waiting in a hook on another thread while this one ends the process.
void exit_during_another_threads_backward() {
  static std::promise<void> inside;
  std::thread([] {
    backward_with_hook([] {
      inside.set_value();
      std::promise<void>().get_future().wait();  // for ever
    });
  }).detach();
  inside.get_future().wait();
  std::exit(kStatus);
}

// The writing thread is in the middle of much work, which the exit does not wait for.
void exit_inside_a_node_while_tensors_are_spilled() {
  static const auto hooks = overdrive::hooks::spill_to_disk({.min_bytes = 0});
  static std::vector<Tensor> losses;
  for (int i = 0; i < 4; ++i) {
    const overdrive::SavedTensorHooksGuard scope(hooks);
    Tensor y = torch::ones({1 << 20}, torch::requires_grad());
    for (int k = 0; k < 4; ++k) y = y.sin();
    losses.push_back(y.sum());
  }
  losses.back().register_hook([](const Tensor&) { std::exit(kStatus); });
  losses.back().backward();
}

// The thread that fetches is inside a hook of the program, which goes on when the exit has begun.
void exit_inside_a_node_while_tensors_are_fetched() {
  static std::promise<void> fetching, go_on;
  static const auto first_thread = std::this_thread::get_id();
  const auto hooks = overdrive::hooks::make_hooks(
      [](const Tensor& tensor, const overdrive::hooks::SaveInfo&) {
        return overdrive::hooks::Packed::of(tensor.clone());
      },
      [first = true](overdrive::hooks::Packed& packed, const overdrive::hooks::UnpackInfo&) mutable {
        if (std::this_thread::get_id() != first_thread && std::exchange(first, false)) {
          fetching.set_value();
          go_on.get_future().wait();
        }
        return packed.tensors[0];
      });
  const overdrive::SavedTensorHooksGuard scope(overdrive::hooks::schedulable(hooks, {.window_tensors = 0}));
  const Tensor loss = leaf().exp().sin().sum();
  loss.register_hook([](const Tensor&) {
    fetching.get_future().wait();
    std::atexit([] { go_on.set_value(); });
    std::exit(kStatus);
  });
  loss.backward();
}

struct Way {
  const char* name;
  void (*leave)();  // returning means that main returns
};

const Way kWays[] = {
    {"return_from_main", [] {}},
    {"return_without_a_backward", [] {}},
    {"return_after_uninstall", [] { check(overdrive::uninstall(), "uninstall"); }},
    {"exit_from_main", [] { std::exit(kStatus); }},
    {"exit_from_a_thread", [] { std::thread([] { backward(), std::exit(kStatus); }).join(); }},
    {"exit_inside_a_hook", [] { backward_with_hook([] { std::exit(kStatus); }); }},
    {"exit_inside_a_node", exit_inside_a_node},
    {"exit_inside_a_nested_backward",
     [] { backward_with_hook([] { backward_with_hook([] { std::exit(kStatus); }); }); }},
    {"exit_inside_a_node_on_a_thread", [] { std::thread(exit_inside_a_node).join(); }},
    {"exit_inside_a_node_while_tensors_are_spilled", exit_inside_a_node_while_tensors_are_spilled},
    {"exit_inside_a_node_while_tensors_are_fetched", exit_inside_a_node_while_tensors_are_fetched},
    {"exit_during_another_threads_backward", exit_during_another_threads_backward},
    {"live_graphs_in_statics", leave_graphs_in_statics},
    {"live_graphs_in_statics_of_a_thread", [] { std::thread(leave_graphs_in_statics).join(); }},
    {"backward_in_an_exit_handler", [] { std::atexit(backward); }},
    {"quick_exit", [] { std::quick_exit(kStatus); }},
    {"quick_exit_inside_a_hook", [] { backward_with_hook([] { std::quick_exit(kStatus); }); }},
    {"underscore_exit_inside_a_hook", [] { backward_with_hook([] { std::_Exit(kStatus); }); }},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc == 1) {
    for (const Way& way : kWays) std::printf("%s\n", way.name);
    return 0;
  }
  for (const Way& way : kWays) {
    if (std::strcmp(argv[1], way.name) != 0) continue;
    overdrive::install();
    if (std::strcmp(way.name, "return_without_a_backward") != 0) {
      backward();
      check(overdrive::stats().backwards == 1, "the backward was ours");
    }
    way.leave();
    return kStatus;
  }
  return 2;
}
