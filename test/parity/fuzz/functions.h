// Custom Functions and Nodes, the part of a graph that is user code. They call back into whoever
// runs the program through `bodies` and `node_event`, which belong to the run under way; not for two
// runs at a time. Printed programs hold this file as it is, so it needs LibTorch only.
#pragma once

#include <torch/autograd.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <functional>
#include <map>
#include <string>

namespace overdrive::fuzz {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::Node;
using torch::autograd::variable_list;

// What the backward of the statement with this id does first; it may change the gradients.
inline std::map<int64_t, std::function<void(variable_list&)>> bodies;
// Told of what happens to a Node of ours: "release", "destroyed", ….
inline std::function<void(const std::string&, int64_t)> node_event;

inline void run_body(int64_t id, variable_list& g) {
  const auto it = bodies.find(id);
  if (it != bodies.end()) it->second(g);
}

inline int64_t id_of(AutogradContext* ctx) { return ctx->saved_data["id"].toInt(); }

// Forward is a*b, saved; B says what backward returns.
template <typename B>
struct Binary : Function<B> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& a, const at::Tensor& b, int64_t id) {
    ctx->save_for_backward({a, b});
    ctx->saved_data["id"] = id;
    return a * b;
  }
  static variable_list backward(AutogradContext* ctx, variable_list g) {
    run_body(id_of(ctx), g);
    const auto s = ctx->get_saved_variables();
    return B::gradients(g[0], s[0], s[1]);
  }
};
struct Product : Binary<Product> {
  static variable_list gradients(at::Tensor g, at::Tensor a, at::Tensor b) {
    return {g * b, g * a, at::Tensor()};
  }
};
struct HalfUndefined : Binary<HalfUndefined> {
  static variable_list gradients(at::Tensor g, at::Tensor, at::Tensor b) {
    return {at::Tensor(), g * b, at::Tensor()};
  }
};
struct SameTwice : Binary<SameTwice> {
  static variable_list gradients(at::Tensor g, at::Tensor, at::Tensor) { return {g, g, at::Tensor()}; }
};
struct Views : Binary<Views> {
  static variable_list gradients(at::Tensor g, at::Tensor, at::Tensor) {
    return {g.alias(), g.view_as(g), at::Tensor()};
  }
};
struct Expanded : Binary<Expanded> {
  static variable_list gradients(at::Tensor g, at::Tensor a, at::Tensor b) {
    return {g.sum().expand_as(a), g.unsqueeze(0), at::Tensor()};
  }
};
struct WrongType : Binary<WrongType> {
  static variable_list gradients(at::Tensor g, at::Tensor, at::Tensor) {
    return {g.to(at::kDouble), g.to(at::kFloat), at::Tensor()};
  }
};
struct WrongShape : Binary<WrongShape> {
  static variable_list gradients(at::Tensor g, at::Tensor, at::Tensor) {
    return {g, at::ones({7}, g.options()), at::Tensor()};
  }
};
struct TooMany : Binary<TooMany> {
  static variable_list gradients(at::Tensor g, at::Tensor, at::Tensor) { return {g, g, at::Tensor(), g}; }
};
struct TooFew : Binary<TooFew> {
  static variable_list gradients(at::Tensor g, at::Tensor, at::Tensor) { return {g}; }
};
struct Sparse : Binary<Sparse> {
  static variable_list gradients(at::Tensor g, at::Tensor, at::Tensor) {
    return {g.to_sparse(), g.to_sparse(), at::Tensor()};
  }
};
struct Zeros : Binary<Zeros> {
  static variable_list gradients(at::Tensor g, at::Tensor, at::Tensor b) {
    return {at::_efficientzerotensor(g.sizes(), g.options()), g * b, at::Tensor()};
  }
};
struct ChangesGradient : Binary<ChangesGradient> {
  static variable_list gradients(at::Tensor g, at::Tensor, at::Tensor b) {
    auto twice = g.mul_(2);
    return {twice, g * b, at::Tensor()};
  }
};
// Keeps what it got for as long as the node lives, so that nobody may write into it.
struct Keeps : Function<Keeps> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& a, const at::Tensor& b, int64_t id) {
    ctx->saved_data["id"] = id;
    return a + b;
  }
  static variable_list backward(AutogradContext* ctx, variable_list g) {
    run_body(id_of(ctx), g);
    ctx->saved_data["kept"] = g[0];
    return {g[0], g[0], at::Tensor()};
  }
};
// Runs its forward again inside backward, as checkpointing does.
struct Checkpoint : Binary<Checkpoint> {
  static variable_list gradients(at::Tensor g, at::Tensor a, at::Tensor b) {
    at::AutoGradMode grad_mode(true);
    auto x = a.detach().requires_grad_();
    auto y = b.detach().requires_grad_();
    torch::autograd::backward({x * y}, {g.detach()});
    return {x.grad(), y.grad(), at::Tensor()};
  }
};

struct InPlace : Function<InPlace> {
  static at::Tensor forward(AutogradContext* ctx, at::Tensor a, int64_t id) {
    ctx->saved_data["id"] = id;
    ctx->mark_dirty({a});
    return a.mul_(2);
  }
  static variable_list backward(AutogradContext* ctx, variable_list g) {
    run_body(id_of(ctx), g);
    return {g[0] * 2, at::Tensor()};
  }
};
struct Pair : Function<Pair> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& a, int64_t id) {
    ctx->saved_data["id"] = id;
    return {a * 2, a + 1};
  }
  static variable_list backward(AutogradContext* ctx, variable_list g) {
    run_body(id_of(ctx), g);
    return {g[0] * 2 + g[1], at::Tensor()};
  }
};
// As Pair, but sees undefined gradients where nothing came.
struct BarePair : Function<BarePair> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& a, int64_t id) {
    ctx->saved_data["id"] = id;
    ctx->set_materialize_grads(false);
    return {a * 2, a + 1};
  }
  static variable_list backward(AutogradContext* ctx, variable_list g) {
    run_body(id_of(ctx), g);
    if (!g[0].defined()) return {g[1], at::Tensor()};
    return {g[1].defined() ? g[0] * 2 + g[1] : g[0] * 2, at::Tensor()};
  }
};
struct HalfPair : Function<HalfPair> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& a, int64_t id) {
    ctx->saved_data["id"] = id;
    at::Tensor second = a + 1;
    ctx->mark_non_differentiable({second});
    return {a * 2, second};
  }
  static variable_list backward(AutogradContext* ctx, variable_list g) {
    run_body(id_of(ctx), g);
    return {g[0] * 2, at::Tensor()};
  }
};

inline void tell(const std::string& what, int64_t id) {
  if (node_event) node_event(what, id);
}

// A Node of the engine's own kind, without the Function's comforts.
struct RawNode : Node {
  explicit RawNode(int64_t id) : id_(id) {}
  ~RawNode() override { tell("destroyed", id_); }
  variable_list apply(variable_list&& g) override {
    run_body(id_, g);
    return variable_list(num_outputs(), g[0]);
  }
  void will_release_variables() override { tell("will release", id_); }
  void release_variables() override { tell("release", id_); }
  std::string name() const override { return "RawNode"; }
  int64_t id_;
};
// Nodes are held by c10::intrusive_ptr since 2.13, by std::shared_ptr before.
template <typename Ptr = decltype(torch::autograd::Edge::function)>
Ptr make_raw_node(int64_t id) {
  if constexpr (std::is_same_v<Ptr, std::shared_ptr<Node>>) {
    return Ptr(new RawNode(id));
  } else {
    return c10::make_intrusive<RawNode>(id);
  }
}
inline variable_list raw_node(const at::Tensor& a, const at::Tensor& b, int64_t id, bool tied) {
  const auto node = make_raw_node(id);
  if (tied) node->set_sequence_nr(2);
  node->set_next_edges(torch::autograd::collect_next_edges(a, b));
  at::NoGradGuard no_grad;
  variable_list out = {a + b};
  if (node->num_outputs() > 0 && torch::autograd::any_variable_requires_grad({a, b}))
    torch::autograd::set_history(out, node);
  return out;
}

}  // namespace overdrive::fuzz
