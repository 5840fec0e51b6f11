// A region of the early form in the graph: the nodes Checkpoint and Recompute, owned by the graph, and the
// segment that both share. The segment holds the region, its inputs, and the tape that Recompute puts in and
// Checkpoint takes out; backwards of one graph on several threads may do so at once. Leaves out when each node
// runs, which is the engine's business.
#pragma once

#include "checkpoint/ahead/ahead_region.h"
#include "checkpoint/ahead/next_regions.h"
#include "checkpoint/early/shared_outputs.h"
#include "checkpoint/region/saved_inputs.h"
#include "engine/base/mutex.h"
#include "engine/base/whole_graph_node.h"

#include <memory>
#include <string>
#include <utility>

namespace overdrive::checkpoint {

class Segment {
 public:
  Segment(Function function, const Tensors& inputs, const Options& options);
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // The first run. Tensors without history.
  Tensors run(const Tensors& inputs);

  // Runs the region again and keeps the tape for take(). An error where its inputs are gone, or were changed.
  void recompute(base::Node& node) OVERDRIVE_EXCLUDES(mutex_);
  // The tape, made now if nobody has made one. It is used once.
  TapePtr take(base::Node& node) OVERDRIVE_EXCLUDES(mutex_);

  AheadRegion& ahead() { return ahead_; }
  void check_backward() const { region_.check_backward(); }
  // The graph is not kept: lets the inputs go.
  void release() OVERDRIVE_EXCLUDES(mutex_);

 private:
  Region region_;
  SavedInputs inputs_;
  SharedOutputs shared_outputs_;

  base::Mutex mutex_;
  TapePtr tape_ OVERDRIVE_GUARDED_BY(mutex_);

  AheadRegion ahead_;  // last: its destructor waits for a run of the region
};

// The part that both nodes of a region have in common: the segment, until the graph lets go of it.
class SegmentNode : public base::HoldingNode, public base::WholeGraphNode {
 public:
  void check_backward() const override { segment_->check_backward(); }
  void release_variables() override { segment_->release(); }
  // The segment's inputs have a history: see HoldingNode.
  void release_resources() override {
    segment_.reset();
    HoldingNode::release_resources();
  }

 protected:
  SegmentNode(std::shared_ptr<Segment> segment, base::edge_list next)
      : HoldingNode(std::move(next)), segment_(std::move(segment)) {}

  std::shared_ptr<Segment> segment_;
};

// Stands for the region: takes the gradients of its outputs back through a tape, by a backward of its own.
class Checkpoint final : public SegmentNode {
 public:
  Checkpoint(std::shared_ptr<Segment> segment, base::edge_list next)
      : SegmentNode(std::move(segment), std::move(next)) {}

  std::string name() const override { return "Checkpoint"; }
  base::variable_list apply(base::variable_list&& gradients) override;
};

// Makes the tape. Its only input and output are tokens, so it can be placed before the gradient arrives.
class Recompute final : public SegmentNode, public AheadNode {
 public:
  Recompute(std::shared_ptr<Segment> segment, base::edge_list next)
      : SegmentNode(std::move(segment), std::move(next)) {}

  std::string name() const override { return "Recompute"; }
  base::variable_list apply(base::variable_list&& gradients) override;

  AheadRegion& ahead_region() override { return segment_->ahead(); }
};

}  // namespace overdrive::checkpoint
