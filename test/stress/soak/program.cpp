#include "test/stress/soak/program.h"

#include "bench/support/same_bits.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

#include <atomic>
#include <memory>
#include <random>

namespace overdrive::soak {

namespace {

using torch::autograd::Engine;
using Random = std::mt19937_64;

constinit std::atomic<int64_t> live{0};

// Held by a hook of every graph, so that a graph which is never freed shows.
struct LiveToken {
  LiveToken() { ++live; }
  ~LiveToken() { --live; }
  LiveToken(const LiveToken&) = delete;
  LiveToken& operator=(const LiveToken&) = delete;
};

size_t below(Random& random, size_t bound) { return static_cast<size_t>(random() % bound); }

at::Tensor leaf(Random& random) {
  std::vector<float> values(16);
  for (float& value : values) value = static_cast<float>(random() % 2001) / 1000 - 1;
  return at::tensor(values).view({4, 4}).set_requires_grad(true);
}

at::Tensor combine(Random& random, const at::Tensor& a, const at::Tensor& b) {
  switch (below(random, 7)) {
    case 0:
      return a + b;
    case 1:
      return a * b;
    case 2:
      return a.matmul(b).mul(0.25);
    case 3:
      return at::tanh(a) - b;
    case 4:
      return at::relu(a).t() + b;
    case 5:
      return at::cat({a, b}, 0).narrow(0, 2, 4);
    default:
      return a.expand({2, 4, 4}).mean(0) + b.sum(0, /*keepdim=*/true);
  }
}

void backward(const at::Tensor& root, Engine* engine) {
  Engine& chosen = engine ? *engine : Engine::get_default_engine();
  chosen.execute({torch::autograd::impl::gradient_edge(root)}, {at::ones_like(root)}, /*keep_graph=*/false,
                 /*create_graph=*/false, /*accumulate_grad=*/true, /*outputs=*/{});
}

struct Graph {
  std::vector<at::Tensor> leaves;
  at::Tensor root;
};

Graph build(Random& random, Engine* engine, int levels_left);

// What the program does in the middle of its backward, besides passing the gradient on.
void add_hook(Random& random, const at::Tensor& at, Engine* engine, int levels_left) {
  auto token = std::make_shared<LiveToken>();
  const uint64_t seed = random();
  switch (below(random, 4)) {
    case 0:
      at.register_hook([token](const at::Tensor& gradient) { return gradient * 2; });
      break;
    case 1:
      if (below(random, 8) == 0) {
        at.register_hook([token](const at::Tensor&) -> at::Tensor { TORCH_CHECK(false, "thrown on purpose"); });
        break;
      }
      [[fallthrough]];
    case 2:
      if (levels_left > 0) {
        at.register_hook([token, seed, engine, levels_left](const at::Tensor& gradient) {
          // Hooks run without a gradient mode to speak of; a graph needs one.
          at::AutoGradMode record(true);
          Random inner(seed);
          const Graph graph = build(inner, engine, levels_left - 1);
          backward(graph.root, engine);
          const at::Tensor& found = graph.leaves[0].grad();
          return found.defined() ? gradient + found : gradient * 1;
        });
        break;
      }
      [[fallthrough]];
    default:
      at.register_hook([token](const at::Tensor&) {});
  }
}

Graph build(Random& random, Engine* engine, int levels_left) {
  Graph graph;
  const size_t leaves = 1 + below(random, 3);
  for (size_t i = 0; i < leaves; ++i) graph.leaves.push_back(leaf(random));
  std::vector<at::Tensor> tensors = graph.leaves;
  const size_t operations = 1 + below(random, 16);
  for (size_t i = 0; i < operations; ++i) {
    const at::Tensor a = tensors[below(random, tensors.size())];
    tensors.push_back(combine(random, a, tensors[below(random, tensors.size())]));
    if (below(random, 3) == 0) add_hook(random, tensors.back(), engine, levels_left);
  }
  graph.root = tensors.back();
  return graph;
}

std::string compare_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return a.defined() ? "is missing" : "should not be there";
  if (!a.defined()) return "";
  if (a.strides() != b.strides()) return "has other strides";
  return bench::same_bits(a, b) ? "" : "has other bits";
}

}  // namespace

Outcome run_program(uint64_t seed, Engine* engine) {
  Random random(seed);
  constexpr int kMostLevels = 3;
  Graph graph = build(random, engine, static_cast<int>(below(random, kMostLevels + 1)));
  Outcome outcome;
  try {
    backward(graph.root, engine);
  } catch (const c10::Error& error) {
    outcome.error = error.msg();
  }
  for (const at::Tensor& leaf : graph.leaves) outcome.gradients.push_back(leaf.grad());
  return outcome;
}

std::string difference(const Outcome& stock, const Outcome& other) {
  if (stock.error != other.error) return "error is \"" + other.error + "\", should be \"" + stock.error + "\"";
  for (size_t i = 0; i < stock.gradients.size(); ++i) {
    const std::string what = compare_bits(stock.gradients[i], other.gradients[i]);
    if (!what.empty()) return "gradient " + std::to_string(i) + " " + what;
  }
  return "";
}

int64_t live_graphs() { return live; }

}  // namespace overdrive::soak
