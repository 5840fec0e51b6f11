#include "engine/overdrive_engine.h"

#include "engine/backward.h"
#include "engine/base/counters.h"
#include "engine/base/live_saved_hooks.h"
#include "engine/foreign_saved_hooks.h"
#include "engine/heap_keeper.h"
#include "engine/host/host_rules.h"
#include "engine/host/thread_state.h"
#include "engine/node/node_call.h"
#include "engine/python_entry/python_entry.h"
#include "engine/python_entry/python_thread.h"
#include "engine/run/active_run.h"
#include "engine/run/fresh_stack.h"
#include "engine/run/thread_context.h"
#include "engine/shadow_check.h"
#include "engine/slots.h"

#include <ATen/SavedTensorHooks.h>
#include <pthread.h>

#include <limits>
#include <typeinfo>

namespace overdrive::engine {

using namespace torch::autograd;

OverdriveEngine& OverdriveEngine::get() {
  static auto* const engine = new OverdriveEngine;
  return *engine;
}

OverdriveEngine::OverdriveEngine() {
  // The base class must never move a nested frame to a thread pool: this object has none.
  max_recursion_depth_ = std::numeric_limits<int>::max();
}

OverdriveEngine::~OverdriveEngine() { stop(); }

// The host's device threads and its pool for deep nests belong to the first engine of the process
// that asks for them, whichever it is. It must be the one that would have had them without us.
// Not at install(): counting devices may start a driver, and forbids fork. A child of fork() asks again, at
// every backward: it is there that the host refuses them.
void OverdriveEngine::own_device_pool() {
  if (device_pool_owned_.load(std::memory_order_acquire)) return;
  previous().initialize_device_threads_pool();
  static const int registered = pthread_atfork(nullptr, nullptr, [] { get().device_pool_owned_.store(false); });
  TORCH_INTERNAL_ASSERT(registered == 0);
  device_pool_owned_.store(true, std::memory_order_release);
}

variable_list OverdriveEngine::execute(const edge_list& roots, const variable_list& inputs, bool keep_graph,
                                       bool create_graph, bool accumulate_grad, const edge_list& outputs) {
  const BackwardCall call{roots, inputs, keep_graph, create_graph, accumulate_grad, outputs};
  const Previous below = previous_engine();
  if (!below.is_python) return serve(call);
  // Python's engine refuses a caller that holds the GIL, and gives Python its error back. In between it comes
  // to serve() through the entry.
  if (!python_entry::is_open()) base::count_forwarded("python engine below");
  return below.engine.execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
}

variable_list OverdriveEngine::serve(const BackwardCall& call) {
  const bool nested = thread_context().innermost != nullptr;
  const host::CompiledAutograd compiled = host::compiled_autograd();
  if (compiled == host::CompiledAutograd::kOn) return forward(call, "compiled autograd");
  if (compiled == host::CompiledAutograd::kUnknown) [[unlikely]]
    warn_of_unknown_compiled_autograd();
  // A call that stock refuses is stock's to refuse, in its own words.
  const edge_list& outputs = call.outputs;
  const variable_list& inputs = call.gradients;
  const bool no_inputs = !call.accumulate_grad && outputs.empty();
  const bool no_gradient = call.roots.size() == 1 && inputs.size() == 1 && !inputs[0].defined();
  if (no_inputs || no_gradient) return forward(call, "invalid call");
  for (size_t i = 0; i < outputs.size(); ++i) {
    TORCH_CHECK(outputs[i].is_valid(), "output ", i, " of the ", outputs.size(),
                " that a backward was asked for is an edge without a node: nothing can be computed for it.");
  }
  if (inside_stock_half()) [[unlikely]]
    return run_inside_stock_half(call);
  own_device_pool();
  if (!nested) note_backward_for_heap();
  // Stock, too, changes the caller's list: gradients are summed to size and converted in place.
  check_root_gradients(call.roots, const_cast<variable_list&>(inputs));
  for (size_t i = 0; i < inputs.size(); ++i) {
    TORCH_CHECK(inputs[i].defined(), "gradient ", i, " of the ", inputs.size(),
                " that a backward begins with is undefined.");
  }
  if (!nested && shadow_check_is_due(options().check_every)) [[unlikely]] {
    return run_with_shadow_check(call, [&] { return run(call, nested); });
  }
  return run(call, nested);
}

// Only Python sets a compiled autograd function, so only a process with Python is warned.
void OverdriveEngine::warn_of_unknown_compiled_autograd() const {
  count(base::counts::compiled_autograd_unknown);
  if (!previous_engine().is_python) return;
  TORCH_WARN_ONCE(
      "Overdrive cannot see in this build of LibTorch whether compiled autograd is on. Backwards run on "
      "Overdrive, "
      "also inside torch._dynamo.compiled_autograd. Call overdrive.uninstall() before you use compiled "
      "autograd. "
      "stats() counts such backwards as compiled_autograd_unknown.");
}

variable_list OverdriveEngine::run(const BackwardCall& call, bool nested) {
  variable_list captured;
  const EngineState state{.engine = *this,
                          .options = options(),
                          .observers = run_watch_source_.load(std::memory_order_acquire),
                          .describe_error = describe_error_.load(std::memory_order_acquire),
                          .saved_hooks_in_use = saved_hooks_may_run(call.create_graph)};
  const auto body = [&] { captured = run_backward(state, call); };
  if (nested && moves_to_thread(thread_context().innermost->depth)) {
    count(base::counts::threads);
    call_on_new_thread(body);
  } else if (!nested || !stack_is_low()) {
    body();
  } else if (state.options.exact == Exact::kAuto || thread_context().worker != nullptr) {
    // A worker stays on its thread in any case: waiting for another, it could not serve its queue.
    count(base::counts::fresh_stacks);
    call_on_fresh_stack(body);
  } else {
    count(base::counts::threads);
    call_on_new_thread(body);
  }
  return captured;
}

// Python counts its calls per thread and raises RecursionError at a thousand. A new thread begins at zero, so
// that with stock, which changes threads at this depth, a nest may be deeper; with us, too. A worker has to
// stay.
bool OverdriveEngine::moves_to_thread(int32_t depth) const {
  return depth >= MAX_DEPTH && previous_engine().is_python && thread_context().worker == nullptr;
}

variable_list OverdriveEngine::forward(const BackwardCall& call, const char* reason) {
  base::count_forwarded(reason);
  const Previous below = previous_engine();
  // Python's own execute() came to us through the entry, and would come again.
  if (below.is_python) {
    return below.engine.Engine::execute(call.roots, call.gradients, call.keep_graph, call.create_graph,
                                        call.accumulate_grad, call.outputs);
  }
  return below.engine.execute(call.roots, call.gradients, call.keep_graph, call.create_graph,
                              call.accumulate_grad, call.outputs);
}

c10::intrusive_ptr<at::ivalue::Future> OverdriveEngine::execute_with_graph_task(
    const std::shared_ptr<GraphTask>& task, base::NodePtr root, InputBuffer&& gradients) {
  if (!HostFrame::prepare(*task, root)) base::count_forwarded("foreign graph task");
  return Engine::execute_with_graph_task(task, std::move(root), std::move(gradients));
}

void OverdriveEngine::live_as_host_thread(const std::shared_ptr<ReadyQueue>& queue,
                                          const std::function<void()>& body) {
  const python_entry::PythonThread python;
  HostEngine::live_as_host_thread(queue, body);
}

std::unique_ptr<AnomalyMetadata> OverdriveEngine::make_anomaly_metadata() {
  std::unique_ptr<AnomalyMetadata> theirs = previous().make_anomaly_metadata();
  const AnomalySource source = anomaly_source.load(std::memory_order_acquire);
  if (source == nullptr || theirs == nullptr) return theirs;
  const AnomalyMetadata& metadata = *theirs;
  if (typeid(metadata) != typeid(AnomalyMetadata)) return theirs;
  return source();
}

std::unique_ptr<SavedVariableHooks> OverdriveEngine::get_default_saved_variable_hooks() {
  if (const SavedHooksSource source = saved_hooks_.load(std::memory_order_acquire)) {
    if (std::unique_ptr<SavedVariableHooks> hooks = source()) return hooks;  // counts itself
  }
  return counted_and_described(previous().get_default_saved_variable_hooks());
}

// Hooks of the graph unpack. Hooks of the thread pack what a backward that creates a graph saves: Python's are
// on LibTorch's list; of ours it is enough to know that there were some.
bool OverdriveEngine::saved_hooks_may_run(bool create_graph) const {
  if (base::LiveSavedHooks::any()) return true;
  if (!create_graph) return false;
  return saved_hooks_.load(std::memory_order_acquire) != nullptr ||
         !at::SavedTensorDefaultHooks::get_tls_state().stack.empty();
}

void OverdriveEngine::thread_on_exception(const std::shared_ptr<GraphTask>& task, const base::NodePtr& node,
                                          std::exception& error) {
  // The previous engine has heard of the failed node already. The task of the frame is still to be ended.
  if (node && HostFrame::is_frame(*node)) {
    HostFrame::note_error(*node);
    Engine::thread_on_exception(task, node, error);
  } else {
    previous().thread_on_exception(task, node, error);
  }
}

}  // namespace overdrive::engine
