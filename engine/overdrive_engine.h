// The Engine subclass that LibTorch sees. One object a process, never destroyed, because backwards may be under
// way and stubs point to it. Any thread may call it. Chooses for each call between our engine and the previous
// one, and leaves the run of a backward to backward.h.
#pragma once

#include "engine/host/host_frame.h"
#include "engine/node/run_watch.h"
#include "engine/options_in_use.h"
#include "engine/run/thread_run_state.h"

#include <atomic>
#include <cstdint>
#include <memory>

namespace overdrive::engine {

struct BackwardCall;

// Makes the hooks for a tensor that an op is about to save, or null.
using SavedHooksSource = std::unique_ptr<torch::autograd::SavedVariableHooks> (*)();

class OverdriveEngine final : public HostEngine {
 public:
  static OverdriveEngine& get();
  static base::Engine& stub() { return get(); }

  // Takes effect for backwards that begin afterwards. One thread at a time, see Switch.
  void set_options(const Options& options) { options_.set(options); }
  const Options& options() const { return options_.now(); }

  // The engine that was the default before us.
  struct Previous {
    base::Engine& engine;
    bool is_python;
  };
  void set_previous(Previous previous) {
    previous_.store(reinterpret_cast<uintptr_t>(&previous.engine) | uintptr_t{previous.is_python},
                    std::memory_order_release);
  }
  Previous previous_engine() const {
    const uintptr_t both = previous_.load(std::memory_order_acquire);
    return {*reinterpret_cast<base::Engine*>(both & ~uintptr_t{1}), (both & 1) != 0};
  }
  base::Engine& previous() const override { return previous_engine().engine; }

  // Asked first for every saved tensor; the previous engine is asked when it has none. Filled by hooks/.
  void set_saved_hooks_source(SavedHooksSource source) {
    saved_hooks_.store(source, std::memory_order_release);
  }

  // Asked at the beginning of every run. Filled by hooks/ when something is to be fetched ahead.
  void set_run_watch_source(RunWatchSource source) {
    run_watch_source_.store(source, std::memory_order_release);
  }

  // Told of every error that comes out of a node. Filled by inspect/.
  void set_error_describer(ErrorDescriber describer) {
    describe_error_.store(describer, std::memory_order_release);
  }

  base::variable_list execute(const base::edge_list& roots, const base::variable_list& inputs, bool keep_graph,
                              bool create_graph, bool accumulate_grad, const base::edge_list& outputs) override;

  // execute() behind Python's engine, which has done its part: for backwards that came through the entry.
  base::variable_list serve(const BackwardCall& call);

  // Frames are ours. Any other task, such as one that c10d's DistEngine drives piece by piece, is
  // the base class's, on this object.
  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<base::GraphTask>& task, base::NodePtr root,
      torch::autograd::InputBuffer&& gradients) override;

  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata() override;
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override;
  void thread_on_exception(const std::shared_ptr<base::GraphTask>& task, const base::NodePtr& node,
                           std::exception& error) override;

  // Python code can run on the thread, where the process holds Python.
  void live_as_host_thread(const std::shared_ptr<torch::autograd::ReadyQueue>& queue,
                           const std::function<void()>& body) override;

 private:
  OverdriveEngine();
  ~OverdriveEngine() override;

  // Whether a nested backward goes on on another thread. `depth`: of the one around it on this thread.
  bool moves_to_thread(int32_t depth) const;
  base::variable_list forward(const BackwardCall& call, const char* reason);
  void warn_of_unknown_compiled_autograd() const;
  base::variable_list run(const BackwardCall& call, bool nested);
  void own_device_pool();
  bool saved_hooks_may_run(bool create_graph) const;

  // The address, and in its lowest bit whether the engine is Python's: a call must not see the one without the
  // other.
  static_assert(alignof(base::Engine) > 1);
  std::atomic<uintptr_t> previous_{reinterpret_cast<uintptr_t>(&base::Engine::get_base_engine())};
  OptionsInUse options_;
  std::atomic<SavedHooksSource> saved_hooks_{nullptr};
  std::atomic<RunWatchSource> run_watch_source_{nullptr};
  std::atomic<ErrorDescriber> describe_error_{nullptr};
  std::atomic<bool> device_pool_owned_{false};
};

}  // namespace overdrive::engine
