#include "checkpoint/chain/sequential.h"

#include "checkpoint/chain/schedule.h"
#include "checkpoint/early/early.h"
#include "checkpoint/on_demand/on_demand.h"
#include "checkpoint/region/dependency.h"
#include "checkpoint/region/region.h"
#include "checkpoint/region/tape.h"
#include "engine/base/whole_graph_node.h"
#include "hooks/hooks.h"

#include <memory>
#include <string>
#include <utility>

namespace overdrive::checkpoint {

namespace {

// The graph owns the layers that it will run again.
Layer part(const std::vector<Layer>& layers, size_t begin, size_t end) {
  return [part = std::vector<Layer>(layers.begin() + static_cast<int64_t>(begin),
                                    layers.begin() + static_cast<int64_t>(end))](at::Tensor value) {
    for (const Layer& layer : part) value = layer(value);
    return value;
  };
}

at::Tensor as_region(Layer layer, const at::Tensor& x, const Options& options) {
  const auto function = [layer = std::move(layer)](const Tensors& inputs) { return Tensors{layer(inputs[0])}; };
  return detail::checkpoint(function, {x}, options)[0];
}

at::Tensor by_segments(const std::vector<Layer>& layers, at::Tensor x, const Segments& schedule,
                       const Options& options) {
  size_t begin = 0;
  for (const int64_t length : even_parts(static_cast<int64_t>(layers.size()), schedule.count)) {
    const size_t end = begin + static_cast<size_t>(length);
    Layer layers_here = part(layers, begin, end);
    if (end == layers.size() && begin > 0) return layers_here(x);
    x = as_region(std::move(layers_here), x, options);
    begin = end;
  }
  return x;
}

at::Tensor by_policy(const std::vector<Layer>& layers, const at::Tensor& x, const Selective& schedule,
                     Options options) {
  TORCH_CHECK(schedule.policy != nullptr, "checkpoint_sequential: Selective needs a policy.");
  TORCH_CHECK(
      options.form != Form::kEarly,
      "checkpoint_sequential: Selective is of the form kOnDemand. For the early form use Segments or Revolve.");
  TORCH_CHECK(options.policy == nullptr && options.packer == nullptr,
              "checkpoint_sequential: policy and packer belong into Selective, not into Options.");
  options.form = Form::kOnDemand;
  options.policy = schedule.policy;
  options.packer = schedule.packer;
  return as_region(part(layers, 0, layers.size()), x, options);
}

// --- by Revolve: a fixed number of states is kept. One node stands for all layers but the last, which is
// recorded as usual; the backward of the node goes back layer by layer. ---

// The way back of the node: one region for each layer, and the states kept by the forward.
struct Chain {
  struct Snapshot {
    size_t position;    // the state is the input of this layer
    int64_t snapshots;  // that the part from here on may use, this one included
    hooks::SavedTensor state;
  };
  std::vector<std::unique_ptr<Region>> regions;
  std::vector<Snapshot> kept;

  at::Tensor run(size_t layer, const at::Tensor& state, bool first) {
    Region& region = *regions[layer];
    return first ? region.run_first({state}, /*graph=*/false)[0] : region.run_again({state})[0];
  }
};

// The way back through one part of the chain after the other, the last first.
class WayBack {
 public:
  WayBack(Chain& chain, at::Tensor gradient) : chain_(chain), gradient_(std::move(gradient)) {}

  // From layer `end` back to `begin`, whose input is `state`, one of so many snapshots.
  void go(size_t begin, size_t end, const at::Tensor& state, int64_t snapshots) {
    while (end > begin) {
      if (end - begin == 1) return step(begin, state);
      if (snapshots == 1) {
        step(end - 1, advance(begin, end - 1, state));
        --end;
        continue;
      }
      const size_t middle =
          begin + static_cast<size_t>(next_snapshot(static_cast<int64_t>(end - begin), snapshots));
      go(middle, end, advance(begin, middle, state), snapshots - 1);
      end = middle;
    }
  }

  at::Tensor gradient() && { return std::move(gradient_); }

 private:
  at::Tensor advance(size_t begin, size_t end, at::Tensor state) {
    for (size_t layer = begin; layer < end; ++layer) state = chain_.run(layer, state, /*first=*/false);
    return state;
  }

  void step(size_t layer, const at::Tensor& state) {
    // Below the first layer there is always somebody who wants the gradient; at the chain's input, ask.
    const bool wanted = layer > 0 || state.requires_grad();
    Tape tape(*chain_.regions[layer], {state}, {wanted && is_differentiable(state)});
    gradient_ = tape.pull({gradient_})[0];
  }

  Chain& chain_;
  at::Tensor gradient_;
};

class RevolveNode final : public base::HoldingNode, public base::WholeGraphNode {
 public:
  RevolveNode(std::unique_ptr<Chain> chain, base::edge_list next)
      : HoldingNode(std::move(next)), chain_(std::move(chain)) {}

  std::string name() const override { return "Revolve"; }

  void check_backward() const override { chain_->regions[0]->check_backward(); }

  base::variable_list apply(base::variable_list&& gradients) override {
    check_backward();
    WayBack way(*chain_, std::move(gradients[0]));
    size_t end = chain_->regions.size();
    for (size_t i = chain_->kept.size(); i-- > 0;) {
      Chain::Snapshot& snapshot = chain_->kept[i];
      at::Tensor state = snapshot.state.unpack(*this);
      // The parts before this one make new snapshots in its place.
      if (last_run_) snapshot.state.release();
      way.go(snapshot.position, end, state, snapshot.snapshots);
      end = snapshot.position;
    }
    return {at::Tensor(), std::move(way).gradient()};
  }

  // Called before apply() when the graph is not kept.
  void will_release_variables() override { last_run_ = true; }

  void release_variables() override {
    for (Chain::Snapshot& snapshot : chain_->kept) snapshot.state.release();
  }

  // The first snapshot has a history: see HoldingNode.
  void release_resources() override {
    chain_.reset();
    HoldingNode::release_resources();
  }

 private:
  std::unique_ptr<Chain> chain_;
  bool last_run_ = false;
};

std::unique_ptr<Region> region_of(const Layer& layer, size_t index, Options options) {
  options.name += (options.name.empty() ? "layer " : ", layer ") + std::to_string(index);
  return std::make_unique<Region>([layer](const Tensors& inputs) { return Tensors{layer(inputs[0])}; },
                                  std::move(options));
}

// Runs all layers but the last, and keeps the states that the way back will start from.
at::Tensor run_forward(Chain& chain, const std::vector<Layer>& layers, at::Tensor state, int64_t snapshots,
                       const Options& options) {
  const size_t count = layers.size();
  size_t next = 0;
  for (size_t i = 0; i + 1 < count; ++i) {
    if (i == next) {
      chain.kept.push_back({i, snapshots, hooks::SavedTensor(state)});
      next = snapshots > 1 ? i + static_cast<size_t>(next_snapshot(static_cast<int64_t>(count - i), snapshots))
                           : count;
      --snapshots;
    }
    chain.regions.push_back(region_of(layers[i], i, options));
    state = chain.run(i, state, /*first=*/true);
  }
  return state;
}

at::Tensor by_revolve(const std::vector<Layer>& layers, const at::Tensor& input, int64_t snapshots,
                      const Options& options) {
  TORCH_CHECK(snapshots >= 1, "checkpoint_sequential: Revolve needs a snapshot at least, and got ", snapshots,
              ".");
  TORCH_CHECK(options.form != Form::kOnDemand && options.policy == nullptr,
              "checkpoint_sequential: Revolve is of the early form. For the form kOnDemand use Segments or "
              "Selective.");
  check_options("checkpoint_sequential", options, options.form.value_or(Form::kEarly));
  const at::Device device = first_defined({input}, options).device();
  if (layers.size() == 1 || runs_plainly({input})) {
    at::Tensor state = input;
    for (const Layer& layer : layers) state = layer(state);
    return state;
  }
  auto chain = std::make_unique<Chain>();
  at::Tensor state = run_forward(*chain, layers, input, snapshots, options);
  if (is_differentiable(state)) {
    state = with_history(
        state, base::make_node<RevolveNode>(
                   std::move(chain),
                   base::edge_list{torch::autograd::impl::gradient_edge(dependency_token(device, true)),
                                   torch::autograd::impl::gradient_edge(input)}));
  }
  return layers.back()(state);
}

}  // namespace

at::Tensor checkpoint_sequential(const std::vector<Layer>& layers, const at::Tensor& input,
                                 const ChainSchedule& schedule, const Options& options) {
  TORCH_CHECK(!layers.empty(),
              "checkpoint_sequential: there are no layers. An empty Sequential has no forward().");
  for (size_t i = 0; i < layers.size(); ++i) {
    TORCH_CHECK(layers[i] != nullptr, "checkpoint_sequential: layer ", i, " is an empty function.");
  }
  if (const auto* segments = std::get_if<Segments>(&schedule)) {
    return by_segments(layers, input, *segments, options);
  }
  if (const auto* selective = std::get_if<Selective>(&schedule)) {
    return by_policy(layers, input, *selective, options);
  }
  return by_revolve(layers, input, std::get<Revolve>(schedule).snapshots, options);
}

Tensors detail::checkpoint(Function fn, Tensors inputs, const Options& options) {
  const Form form = options.form.value_or(Form::kOnDemand);
  check_options("checkpointed", options, form);
  if (form == Form::kOnDemand) return run_on_demand(std::move(fn), inputs, options);
  Checkpointing region(std::move(fn), std::move(inputs), options);
  return region.recompute(region.checkpoint());
}

}  // namespace overdrive::checkpoint
