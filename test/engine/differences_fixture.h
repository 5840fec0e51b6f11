// What the tests of differences from stock share: a node with any body, and either engine to run it on.
#pragma once

#include "engine/engine.h"

#include "test/support/pch.h"
#include "test/support/typed_node.h"

#include <thread>

namespace overdrive::test {

using namespace torch::autograd;

// Runs `body` on one engine, on a thread of its own: some of what stock does it leaves behind there.
template <typename Body>
void on_stock(Body body) {
  std::thread(body).join();
}
template <typename Body>
void on_ours(Body body, const Options& options = {}) {
  ScopedInstall installed(options);
  std::thread(body).join();
}

struct Body : Node {
  std::function<variable_list(variable_list&&)> body;
  variable_list apply(variable_list&& gradients) override { return body(std::move(gradients)); }
  std::string name() const override { return "Body"; }
};

inline auto make_body(std::function<variable_list(variable_list&&)> body) {
  auto node = make_typed_node<Body>();
  node->add_input_metadata(torch::ones({1}));
  node->body = std::move(body);
  return node;
}

inline void run(const base::NodePtr& root, const torch::Tensor& gradient = torch::ones({1})) {
  Engine::get_default_engine().execute({Edge(root, 0)}, {gradient}, /*keep_graph=*/false, false, true);
}

}  // namespace overdrive::test
