// Runs a program statement by statement, on whatever engine is the default then, and writes down
// everything it sees. Owns the program's tensors and threads for one run; a second one at the same
// time would mix up the custom Functions. Does not compare and does not choose the engine.
#pragma once

#include <ATen/ThreadLocalState.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "bench/support/tensor_bytes.h"
#include "engine/base/torch_types.h"
#include "test/parity/fuzz/coverage.h"
#include "test/parity/fuzz/lane.h"
#include "test/parity/fuzz/observe.h"
#include "test/parity/fuzz/program.h"

namespace overdrive::fuzz {

// Counts from the first call to the end of the process, as memory may outlive any scope.
bench::TensorBytes& tensor_bytes();

class Interpreter {
 public:
  // `on_switch` is what kSwitch does, `on_lane` what is around each thread; both may be empty.
  Interpreter(uint64_t seed, const Watch& watch, std::function<void()> on_switch = {}, LaneScope on_lane = {});
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Called before each backward of the top level with its roots and inputs, and whether its gradients are added
  // to leaves; the function that it returns, with the backward's features when the backward has ended well.
  using Onlooker = std::function<std::function<void(uint32_t features)>(
      const variable_list& roots, const variable_list& inputs, bool accumulates)>;
  void set_onlooker(Onlooker onlooker) { onlooker_ = std::move(onlooker); }

  // Runs one statement of the top level on its lane. False when it failed or had nothing to do;
  // the error is an observation, not an exception.
  bool step(const Statement& s);
  // Drops all tensors; the observation is complete afterwards.
  void finish();

  const Observation& observation() const { return *seen_; }
  const Reached& reached() const { return reached_; }
  const Tensor& slot(int i) const;

 private:
  friend class LoggingHook;

  // What kRemoveHook needs to find a hook again.
  struct Handle {
    HookKind kind = HookKind::kTensor;
    int slot = kNoSlot;
    unsigned index = 0;
    uintptr_t key = 0;
    base::WeakNodePtr node{NodePtr()};
  };

  void log(std::string line);
  bool attempt(const Statement& s, bool top);
  bool execute(const Statement& s);
  bool run_leaf(const Statement& s);
  bool run_op(const Statement& s);
  bool run_hook(const Statement& s);
  bool run_remove_hook(const Statement& s);
  bool run_backward(const Statement& s);
  bool run_outermost(const Statement& s, const variable_list& roots);
  bool would_reenter(const variable_list& roots);
  bool run_nested(const Statement& s, const variable_list& roots);
  bool run_callback(const Statement& s);
  void change_mode(int64_t k);
  void query();
  Tensor& mutable_slot(int i);

  // A hook or a Function's backward: what it sees is logged, then its body runs.
  void fire(const std::shared_ptr<const Statement>& s, const char* what, const Node* node,
            variable_list& grads);
  std::string surroundings(const Node* node);
  std::string see_gradients(const variable_list& grads);
  void hook_fired(const Statement& s);

  std::function<void(uint32_t)> look_on(const Statement& s, const variable_list& roots);
  void keep_results(const Statement& s, variable_list results);
  void count_reached(const std::vector<const Node*>& nodes);
  variable_list call_backward(const Statement& s, const variable_list& roots);
  std::vector<NodePtr> walk(const variable_list& roots);
  void watch_nodes(const std::vector<NodePtr>& nodes);
  uint32_t features_of(const Statement& s, const std::vector<NodePtr>& nodes);
  void snapshot();

  // Stock leaves what was ready when an error came in the thread's queue, and lets go of it when
  // something else runs there; when exactly, is not part of the contract.
  bool sees_lifetimes() const { return watch_.lifetimes && !error_under_way_; }
  void empty_queue_of_stock();
  std::string alive() const;

  const Watch watch_;
  const std::function<void()> on_switch_;
  const LaneScope on_lane_;
  Onlooker onlooker_;
  std::shared_ptr<Observation> seen_ = std::make_shared<Observation>();
  Reached reached_;

  std::vector<Tensor> slots_;
  std::vector<int> op_of_slot_;
  std::unordered_map<const Node*, int> op_of_node_;
  std::map<int, Handle> hooks_;
  int next_watch_ = 0;

  std::map<int, int> task_names_;
  std::vector<const void*> busy_;  // nodes and tensors whose hooks are being run now
  std::vector<int> running_;       // statements whose bodies are being run now
  int fires_left_ = 80;
  int backward_depth_ = 0;
  std::vector<const torch::autograd::Node*> nested_in_;  // whose hooks or bodies we are in
  bool error_under_way_ = false;                         // a backward failed inside the one under way
  uint32_t features_ = 0;                                // of the top-level backward under way
  std::vector<std::pair<int, c10::weak_intrusive_ptr<at::TensorImpl>>> gradients_;
  int next_gradient_ = 0;

  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<at::ThreadLocalState> lane_states_;
  std::vector<std::shared_ptr<void>> lane_scopes_;
};

}  // namespace overdrive::fuzz
