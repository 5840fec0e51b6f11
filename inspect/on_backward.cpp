#include "inspect/on_backward.h"

#include "engine/check_installed.h"
#include "engine/run/watchers.h"

#include <ATen/ThreadLocalState.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace overdrive::inspect {
namespace {

using torch::autograd::variable_list;

// The modes of the thread are the run's: a function that changes them changes nothing for the node.
class KeptModes {
 private:
  const at::ThreadLocalStateGuard guard_{at::ThreadLocalState()};
};

class HookedRun final : public engine::RunWatch {
 public:
  HookedRun(std::shared_ptr<const BackwardHooks> hooks, const BackwardInfo& info)
      : hooks_(std::move(hooks)), info_(info) {}

  void before_node(const engine::NodeFacts& facts) override {
    if (!hooks_->before_node) return;
    const KeptModes kept;
    hooks_->before_node({info_, facts.node}, facts.inputs);
  }
  void after_node(const engine::NodeFacts& facts, const variable_list& outputs, bool) override {
    if (!hooks_->after_node) return;
    const KeptModes kept;
    hooks_->after_node({info_, facts.node}, outputs);
  }
  void end(const std::exception_ptr& error) override {
    if (hooks_->end) hooks_->end(info_, error);
  }

 private:
  const std::shared_ptr<const BackwardHooks> hooks_;
  const BackwardInfo info_;
};

size_t nodes_that_may_run(const engine::Plan& plan) {
  return static_cast<size_t>(std::count_if(plan.nodes.begin(), plan.nodes.end(),
                                           [](const engine::PlannedNode& node) { return node.needed; }));
}

}  // namespace

class BackwardScope::Watching final : public engine::Watcher {
 public:
  explicit Watching(BackwardHooks hooks) : hooks_(std::make_shared<const BackwardHooks>(std::move(hooks))) {}

  std::unique_ptr<engine::RunWatch> watch(const engine::RunFacts& facts) override {
    if (hooks_->only_this_thread && thread_ != std::this_thread::get_id()) return nullptr;
    const BackwardInfo info{facts.number, nodes_that_may_run(facts.plan), facts.depth, facts.keep_graph,
                            facts.create_graph};
    if (hooks_->begin) hooks_->begin(info);
    return std::make_unique<HookedRun>(hooks_, info);
  }
  bool runs_user_code() const override { return true; }

 private:
  const std::shared_ptr<const BackwardHooks> hooks_;
  const std::thread::id thread_ = std::this_thread::get_id();
};

BackwardScope::BackwardScope(BackwardHooks hooks) : watching_(std::make_shared<Watching>(std::move(hooks))) {
  engine::check_installed("on_backward() follows backwards on Overdrive");
  engine::add_watcher(watching_);
}

BackwardScope::~BackwardScope() { engine::remove_watcher(*watching_); }

}  // namespace overdrive::inspect
