// The root that a plan begins at, for tensors that a backward would begin at. Several roots hang under a node
// that looks to a plan like LibTorch's own, takes no sequence number and never runs. Owned by its user.
#pragma once

#include "engine/base/torch_types.h"

namespace overdrive::inspect {

class RootGroup {
 public:
  // An error when a tensor asks for no gradient.
  explicit RootGroup(const std::vector<at::Tensor>& tensors) {
    TORCH_CHECK(!tensors.empty(), "A graph was asked for without a tensor to begin at.");
    for (size_t i = 0; i < tensors.size(); ++i) {
      TORCH_CHECK(tensors[i].defined() && tensors[i].requires_grad(), "Tensor ", i, " of the ", tensors.size(),
                  " that a graph was asked for does not require a gradient, so it has no graph.");
      roots_.push_back(torch::autograd::impl::gradient_edge(tensors[i]));
    }
    root_ = has_several() ? base::make_node<Group>(roots_) : roots_[0].function;
  }

  const base::NodePtr& root() const { return root_; }
  bool has_several() const { return roots_.size() > 1; }
  const base::edge_list& roots() const { return roots_; }

 private:
  struct Group final : base::Node {
    explicit Group(base::edge_list edges) : Node(UINT64_MAX, std::move(edges)) {}
    std::string name() const override { return "GraphRoot"; }
    base::variable_list apply(base::variable_list&&) override { return {}; }
  };

  base::edge_list roots_;
  base::NodePtr root_;
};

}  // namespace overdrive::inspect
