#include "engine/run/run.h"

#include "engine/base/cache_lines.h"
#include "engine/node/grad_sum.h"
#include "engine/plan/task_tables.h"
#include "engine/run/native_permission.h"

#include <ATen/record_function.h>

namespace overdrive::engine {

using namespace torch::autograd;

Run::Run(ThreadContext& context, RunMemory& memory, ThreadState& state, const RunOptions& options)
    : context_(context),
      memory_(memory),
      options_(options),
      captured_(memory.plan.num_captured()),
      step_(step_of(memory.plan, captured_, options)),
      run_state_(context, state, options_, options.current_node, memory.lists) {}

Run::~Run() {
  if (ready_ != 0) context_.abandon(*this);
}

void Run::run(base::NodePtr root, const edge_list& root_edges, const variable_list& gradients) {
  memory_.slots.resize(memory_.plan.num_slots());
  if (memory_.plan.num_inputs(0) != 0) memory_.slots[root_edges[0].input_nr] = gradients[0];
  make_ready(0, std::move(root));
  run_ready();
  TORCH_CHECK(incomplete_ == 0, "could not compute gradients for some functions");
}

void Run::run_ready() {
  while (ready_ != 0) {
    ReadyTask task = context_.heap.pop();
    if (task.run == nullptr) continue;  // of a nested backward that failed
    if (task.run != this) [[unlikely]]
      refuse_fiber(std::move(task));
    --ready_;
    run_state_.run(task, [&] { evaluate(task.node); });
    foreign_ran_ |= options_.user_code && !run_state_.ran_native;
  }
}

// Foreign code may have begun a profiler, anomaly mode or a level of forward mode. That matters to the next
// native node alone: most programs have none between their own nodes.
void Run::ask_again(const PlannedNode& planned) {
  if (!foreign_ran_ || planned.native == 0) return;
  foreign_ran_ = false;
  if (options_.native_refusal == NativeRefusal::kNone) {
    step_.call.refusal = refusal_of_thread(at::hasCallbacks());
  }
}

// The task belongs to a backward that began inside of this one and is not over, though its caller goes on: it
// is on a fiber of the program's, which it will end on.
void Run::refuse_fiber(ReadyTask task) {
  context_.heap.push(std::move(task));
  TORCH_CHECK(false,
              "A hook or node of a backward switched to another fiber of its thread, and back before a "
              "backward that began there was over. A backward that begins inside of another one ends inside "
              "of it. Run the inner one on a thread of its own.");
}

void Run::evaluate(uint32_t index) {
  struct ResultSink {
    void arrive(uint32_t target, const Edge& edge, at::Tensor&& gradient) {
      run.arrive(target, edge, std::move(gradient));
    }
    void ended() {}
    void called(bool native) { run.run_state_.ran_native = native; }
    Run& run;
  };
  // The nodes behind this one come into the cache while it runs.
  for (const Edge& edge : memory_.plan.nodes[index].node->next_edges()) {
    base::fetch_lines(edge.function.get(), sizeof(Node));
  }
  ask_again(memory_.plan.nodes[index]);
  take_inputs(memory_.plan, index, memory_.slots.data() + memory_.plan.nodes[index].first_slot,
              run_state_.lists.inputs);
  run_node(step_, index, run_state_.lists, ResultSink{*this});
}

void Run::arrive(uint32_t target, const Edge& edge, at::Tensor&& gradient) {
  PlannedNode& planned = memory_.plan.nodes[target];
  check_still_waits(planned);
  if (options_.task_tables) note_arrival(*options_.task, planned.node);
  const bool last = count_arrival(planned, incomplete_);
  if (!planned.may_run) return;
  at::Tensor& slot = memory_.slots[slot_of(memory_.plan, target, edge)];
  const bool meets = slot.defined() && gradient.defined();
  add_gradient(slot, std::move(gradient), planned.node, meets && sums_below_autograd());
  if (last) make_ready(target, edge.function);
}

// Whether nothing can notice that a sum of what this node returned is made without the dispatcher. Foreign code
// may have left modes behind, which the run state takes back after the node.
bool Run::sums_below_autograd() const {
  if (step_.call.run_native == nullptr || options_.native_refusal != NativeRefusal::kNone) return false;
  if (!options_.user_code || run_state_.ran_native) return step_.call.refusal == NativeRefusal::kNone;
  return refusal_of_thread(at::hasCallbacks()) == NativeRefusal::kNone;
}

void Run::make_ready(uint32_t index, base::NodePtr node) {
  ++ready_;
  const uint64_t sequence_nr = node->sequence_nr();
  context_.heap.push({{run_state_.active.depth, sequence_nr}, index, this, std::move(node)});
}

}  // namespace overdrive::engine
