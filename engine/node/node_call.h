// Runs one node with its hooks, in stock's order, and checks the gradients that the node returned. No state;
// runs on the thread of the run.
#pragma once

#include "engine/base/torch_types.h"

#include <ATen/record_function.h>

namespace overdrive::engine {

// The hooks of the tensors that this node made, and those that retain their gradients. They run
// for every node that a backward passes, also when its apply() is not needed.
void call_tensor_pre_hooks(base::Node& node, base::variable_list& gradients);

// Of a node that a hook gave another output since the run was planned: nothing has come for its gradient.
inline void add_late_inputs(const base::Node& node, base::variable_list& gradients) {
  if (gradients.size() < node.num_inputs()) [[unlikely]]
    gradients.resize(node.num_inputs());
}

// Why no node may run in the place of its apply(), although its type has a function: something could notice.
enum class NativeRefusal : uint8_t {
  kNone,
  kHook,         // of this node
  kCreateGraph,  // or grad mode, that a hook left on
  kInputs,       // some gradients only: LibTorch's nodes compute the wanted ones
  kDevices,      // the graph has nodes of a device with a queue
  kMode,         // dispatch keys or modes of the thread, autocast, inference mode
  kLevel,        // of forward mode
  kAnomaly,
  kProfiler,  // or other callbacks of RecordFunction
  kWatch,     // on_backward(), or a progress function
  kExact,     // Options::exact
  kHowMany
};

// A higher folder's way to run a node in the place of its apply(): `results`, empty at first, gets one place an
// edge. False: nothing was changed. Counts both, and only counts where there is a refusal.
using RunNative = bool (*)(uint16_t number, base::Node& node, base::variable_list& gradients,
                           base::variable_list& results, bool views_are_seen, NativeRefusal refusal);

// How the nodes of a run are called.
struct NodeCall {
  bool keep_graph = false;
  bool views_are_seen = false;                   // the program may get what a node returns
  bool user_code = false;                        // code from outside LibTorch may run in this backward
  NativeRefusal refusal = NativeRefusal::kNone;  // why none may run in the place of its apply() now
  RunNative run_native = nullptr;                // null: native nodes are switched off

  bool may_run_native() const { return run_native != nullptr && refusal == NativeRefusal::kNone; }
};

// Pre-hooks, apply(), the check of what it returned, post-hooks. `gradients` is used up; `outputs` keeps its
// memory from node to node. `native`: the number of the node's type, for `run_native`; 0: none. Returns whether
// `run_native` ran the node.
bool call_node(base::Node& node, uint16_t native, base::variable_list& gradients, base::variable_list& outputs,
               const NodeCall& call);

// The event that stock's loop emits around each node, with `body` in it. Apart, because the event is large and
// backwards nest.
template <typename Body>
[[gnu::noinline]] void run_in_event(base::Node& node, at::StepCallbacks&& callbacks, Body& body) {
  at::RecordFunction event(std::move(callbacks));
  event.before(c10::str("autograd::engine::evaluate_function: ", node.name()));
  body();
}

// Runs `body`, which evaluates `node`; where a profiler wants to know, inside the node's event.
template <typename Body>
void run_profiled(base::Node& node, Body body) {
  auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
  if (callbacks.has_value()) [[unlikely]] {
    run_in_event(node, std::move(*callbacks), body);
  } else {
    body();
  }
}

// Anomaly mode: an error when a gradient that `node` returned holds a NaN.
void check_for_nan(base::Node& node, const base::variable_list& gradients);

// Checks that gradients which a node returned fit the nodes they go to, and changes `gradients` where the
// host's rules say so. The quick check settles the ordinary case, and sums a gradient to the sizes of an
// operand that the forward repeated; all else is left to the host's validate_outputs(), which converts and
// words the errors. An error names `node`. `below_autograd`: nothing can notice how a sum is made.
void check_gradients(base::Node& node, base::variable_list& gradients, bool below_autograd);

// The same for the gradients that a call to backward begins with; errors carry no prefix.
void check_root_gradients(const base::edge_list& roots, base::variable_list& gradients);

}  // namespace overdrive::engine
