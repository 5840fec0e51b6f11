// Two threads add to one plain counter inside a node, and inside a hook, of backwards that run on
// Overdrive. A build with the thread sanitizer must report both races, suppressions and all: the test
// passes when the reports name them (see CMakeLists.txt).
#include "engine/engine.h"
#include "test/support/typed_node.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>

#include <cstdio>
#include <thread>

namespace {

using namespace torch::autograd;

int runs_of_a_node = 0;
int runs_of_a_hook = 0;

__attribute__((noinline)) void race_inside_a_node() { ++runs_of_a_node; }
__attribute__((noinline)) void race_inside_a_hook() { ++runs_of_a_hook; }

struct RacyNode : Node {
  variable_list apply(variable_list&&) override {
    race_inside_a_node();
    return {};
  }
};

struct RacyHook : FunctionPreHook {
  variable_list operator()(const variable_list& gradients) override {
    race_inside_a_hook();
    return gradients;
  }
};

void run_backwards() {
  const at::Tensor one = at::ones({1});
  for (int i = 0; i < 200; ++i) {
    auto node = overdrive::test::make_typed_node<RacyNode>();
    node->add_input_metadata(one);
    node->add_pre_hook(std::make_unique<RacyHook>());
    Engine::get_default_engine().execute({Edge(node, 0)}, {one}, false, false, true);
  }
}

}  // namespace

int main() {
  overdrive::install();
  std::thread other(run_backwards);
  run_backwards();
  other.join();
  std::printf("%d runs of a node, %d of a hook\n", runs_of_a_node, runs_of_a_hook);
}
