// The node that stands for one call of a captured part. Owned by the graph; any thread may run it. It has the
// memory of the call (a leased run) and replays the backward there. What no recording fits (create_graph,
// gradients in another form, some of the gradients alone) comes from the function itself, which then runs once
// more.
#pragma once

#include "engine/base/taskless_node.h"
#include "engine/host/version_check.h"
#include "replay/part/part_function.h"
#include "replay/part/wanted_paths.h"
#include "replay/run/replay_run.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace overdrive::replay {

struct PartCounts {  // Backwards of the calls, over all threads.
  std::atomic<uint64_t> replayed{0};
  std::atomic<uint64_t> again{0};
};

// A run that one call has to itself until it lets go.
class Lease {
 public:
  explicit Lease(std::shared_ptr<ReplayRun> run) : run_(std::move(run)) {}
  ~Lease() {
    if (run_) run_->give_back();
  }
  Lease(Lease&&) noexcept = default;
  Lease& operator=(Lease&&) = delete;

  ReplayRun& operator*() const { return *run_; }
  ReplayRun* operator->() const { return run_.get(); }

 private:
  std::shared_ptr<ReplayRun> run_;
};

struct PartPlan {  // What all calls of one recording have in common; never changed.
  PartPlan(const Program& program, const PartFunction& function);

  // A tensor that the backward reads. What made it, for the error text.
  struct Read {
    int index;
    std::string producer = {};
    uint32_t output_nr = 0;
  };
  // What a backward reads of what was there at the end of the forward.
  struct Reads {
    // Of each of the tensors `outside`.
    std::vector<bool> outside;
    std::vector<Read> inputs;
    std::vector<Read> outputs;
    // Whether it reads anything that the forward left. Otherwise it may run again: nothing is freed.
    bool saves = false;
  };
  // Each has a backward.
  std::shared_ptr<const PartForms> forms;
  // Of each form.
  std::vector<Reads> reads;
  // Of all of them.
  Reads any;
  std::vector<PartUse> uses;
  // That eager's call makes.
  uint64_t nodes = 0;
  std::vector<bool> differentiable;
  // Tensors from before the call.
  std::vector<c10::TensorImpl*> outside;
  // Which of them required a gradient.
  std::vector<bool> required;
  // Outputs that are views in eager.
  std::vector<size_t> views;
  // Of each output, the outputs whose backward frees something that its own needs.
  std::vector<std::vector<bool>> shared_nodes;
  // Of each output, the uses whose gradients its backward makes.
  std::vector<std::vector<bool>> leads;
  // Of each output, the outputs that it was made of.
  std::vector<std::vector<bool>> made_of;
  // Of each output, the number of its node among those that eager's call makes.
  std::vector<uint64_t> producers;
  // Whether these are several. Note [Outputs with nodes of their own] in the source.
  bool has_output_nodes = false;
  // Whether all operators of its backwards are LibTorch's own, which ask for no task.
  bool runs_libtorch_alone = true;
  // Whether the forward changes memory from outside or draws random numbers: its state before is kept, in case
  // that the function runs again.
  bool has_state = false;
  // Tensors from before the call that the forward changes, and how often, as their version counters tell.
  std::vector<bool> written;
  std::vector<int64_t> bumps;

 private:
  void note_outside(const Program& program, const PartFunction& function);
  Reads reads_of(const Program& program, const PartFunction& function, int begin, int end) const;
};

class PartNode final : public NodeOfPaths, public base::TasklessNode {
 public:
  // After the forward; the guard has found the tensors from outside in their place. `before`: what the forward
  // changes, as it was.
  static void attach(std::shared_ptr<PartFunction> function, std::shared_ptr<const PartPlan> plan,
                     std::shared_ptr<PartCounts> counts, Lease lease, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& outputs, Snapshot before);

  // `rank`: among the nodes of a backward.
  PartNode(uint64_t rank, std::shared_ptr<PartFunction> function, std::shared_ptr<const PartPlan> plan,
           std::shared_ptr<PartCounts> counts, Lease lease, const std::vector<at::Tensor>& inputs,
           Snapshot before);

  std::string name() const override { return "CapturedPart"; }
  base::variable_list apply(base::variable_list&& gradients) override;
  void release_variables() override;
  void release_resources() override;
  // By the number of an output among those that have a gradient.
  bool leads(size_t gradient, size_t use) const override;
  bool needs_no_task() const override { return plan_->runs_libtorch_alone; }
  // An error where the program wants the gradient of an output that another one is made of, which has one, too.
  // `gradients`: of the outputs; null: all have one.
  void refuse_uses_of_feeding_outputs(const WantedPaths& paths, const std::vector<at::Tensor>* gradients);
  // A backward that does not keep the graph says so before it calls apply().
  void will_release_variables() override { will_release_.store(true, std::memory_order_relaxed); }

 private:
  // Of the forward, kept for the backward.
  struct Kept {
    c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
    c10::Storage storage;
    engine::host::VersionCheck version;
  };
  class PutBack;
  class FlagsOfForward;
  std::vector<bool> wanted_uses(const WantedPaths& paths);
  void refuse_needless_nodes(const WantedPaths& paths, const std::vector<bool>& wanted);
  void keep_outside();
  void give_outputs(const std::vector<at::Tensor>& outputs, const base::NodePtr& self, uint64_t first);
  void check_saved(const PartPlan::Reads& reads) const;
  void check_all() const;
  void check_outside(size_t index) const;
  // Of each output of the function; undefined where none arrived.
  std::vector<at::Tensor> of_outputs(const base::variable_list& gradients) const;
  base::variable_list replayed(size_t form, const std::vector<at::Tensor>& gradients);
  base::variable_list again(const std::vector<at::Tensor>& gradients, const std::vector<bool>& wanted,
                            bool create_graph, bool keep_graph);
  void check_freed(const std::vector<at::Tensor>& gradients, const std::vector<bool>& wanted);
  void check_same_outputs(const std::vector<at::Tensor>& outputs) const;
  void let_go();

  const std::shared_ptr<PartFunction> function_;
  const std::shared_ptr<const PartPlan> plan_;
  const std::shared_ptr<PartCounts> counts_;
  // The node of an output, and another output that was made of it.
  struct Feeding {
    base::WeakNodePtr node;
    size_t fed;
  };
  std::vector<Feeding> feeding_;
  std::atomic<bool> will_release_ = false;
  std::mutex release_mutex_;
  // Outputs whose graph an eager backward would have freed, and those of the last backward.
  std::vector<bool> freed_;
  std::vector<bool> arrived_;
  bool saves_ = false;
  // Whether saves_ was seen of those that arrived together, and says nothing of another output.
  bool saves_for_arrived_ = false;
  std::optional<Lease> lease_;
  std::vector<Kept> outside_;
  std::vector<at::Tensor> inputs_;
  std::vector<engine::host::VersionCheck> input_versions_;
  std::vector<engine::host::VersionCheck> output_versions_;
  std::vector<engine::host::VersionCheck> view_versions_;
  Snapshot before_;
};

}  // namespace overdrive::replay
