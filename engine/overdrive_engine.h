// The Engine subclass that LibTorch sees. One object a process, never destroyed.
// Decides per call whether our scheduler runs it or the previous engine does.
#pragma once

#include "engine/base/torch_types.h"
#include "engine/options.h"

#include <atomic>
#include <memory>

namespace overdrive::engine {

class OverdriveEngine final : public base::Engine {
 public:
  static OverdriveEngine& get();
  static base::Engine& stub() { return get(); }

  // Takes effect for backwards that begin afterwards.
  void set_options(const Options& options);
  void set_previous(base::Engine& previous) { previous_.store(&previous, std::memory_order_release); }
  base::Engine& previous() const { return *previous_.load(std::memory_order_acquire); }

  base::variable_list execute(const base::edge_list& roots, const base::variable_list& inputs, bool keep_graph,
                              bool create_graph, bool accumulate_grad, const base::edge_list& outputs) override;

 private:
  OverdriveEngine();
  ~OverdriveEngine() override;

  std::atomic<base::Engine*> previous_;
};

}  // namespace overdrive::engine
