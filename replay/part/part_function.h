// The function of a part as a recording calls it: eagerly; recorded, with a backward by placeholders after it;
// and once more in a backward that no recording fits. Shared by the recording and the nodes of its calls. The
// recording's thread records, any thread runs a backward.
#pragma once

#include "engine/host/version_check.h"
#include "replay/part/part_form.h"
#include "replay/part/part_gradients.h"
#include "replay/part/part_graph.h"
#include "replay/record/environment.h"
#include "replay/record/kept_casts.h"
#include "replay/record/recorder.h"

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace overdrive::replay {

class PartFunction : public std::enable_shared_from_this<PartFunction> {
 public:
  // `number`: the caller's for this function, told while it runs again.
  PartFunction(Function function, int64_t number);

  // As if it were not captured.
  std::vector<at::Tensor> plain(const std::vector<at::Tensor>& inputs) const { return function_(inputs); }
  // With a graph as it comes. Sees in which form the gradients of the outputs arrive.
  std::vector<at::Tensor> eager(const std::vector<at::Tensor>& inputs);
  // For a recorder: the outputs, then the gradients of the uses, for each form in turn. The outputs with their
  // graph are kept.
  std::vector<at::Tensor> record(const std::vector<at::Tensor>& inputs);
  // Of the last recorded call; none when it made no graph.
  std::optional<std::vector<at::Tensor>> take_outputs();
  // Other numbers in the placeholders.
  void refill();

  // Casts that the calls are given behind so many inputs. Note [Casts that autocast keeps].
  void give_casts(size_t inputs, std::vector<KeptCast> casts);
  // Of the last recording.
  const std::vector<PartUse>& uses() const { return uses_; }
  const std::vector<std::vector<bool>>& shared_nodes() const { return shared_nodes_; }
  const std::vector<std::vector<bool>>& leads() const { return leads_; }
  bool frees_a_function() const { return frees_a_function_; }
  // Whether a leaf that the last recorded call has made lives still.
  bool is_leaf_held() const;
  // How many nodes the function made.
  uint64_t nodes() const { return nodes_; }
  // Whether an output requires a gradient.
  bool is_differentiable(size_t output) const { return differentiable_[output]; }
  // The node that made an output in the last recording, as an error names it, and which output of the node it
  // is.
  const std::pair<std::string, uint32_t>& producer(size_t output) const { return producers_[output]; }
  // Of each output of the last call that was no replay, whether another one was made of it.
  const std::vector<std::vector<bool>>& made_of() const { return made_of_; }
  // Of each output of the last recording, the number of its node among those of the call.
  const std::vector<uint64_t>& producer_numbers() const { return producer_numbers_; }
  // Whether an output was a view. Note [Outputs that are views] in the source.
  bool is_view(size_t output) const { return views_[output]; }
  void refuse_changed_views();
  // Looks whether views that the last call returned were changed in place.
  void look_at_views();
  bool is_placeholder(const c10::TensorImpl* tensor) const { return forms_.is_placeholder(tensor); }
  // What the function does with gradients that it has not made.
  PartGradients& gradients() { return gradients_; }
  // Those of the last recording.
  const std::shared_ptr<const PartForms>& forms() const { return forms_.recorded(); }
  // Held by whoever runs a recorded backward, and by the recording while it records. Recursive: a function may
  // run backwards of its own.
  std::recursive_mutex& mutex() { return mutex_; }

  // A backward has come to the results of a call; and how often one has, which a backward that comes to several
  // of them counts several times.
  void note_backward() { backwards_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t backwards() const { return backwards_.load(std::memory_order_relaxed); }
  // Whether a backward was seen, or so many calls without one that none is expected.
  bool knows_gradients() const;
  // Gradients have arrived at a replay. A form that is not recorded and comes often is the next recording's.
  // `form`: the number of theirs among those of the call; -1: they have none of these.
  void note_gradients(const std::vector<at::Tensor>& gradients, const std::vector<bool>& wanted,
                      const PartForms* of_the_call, int form);
  // A backward could not run the function once more: what it needs was changed since. Its form is the next
  // recording's.
  void note_failed(const std::vector<at::Tensor>& gradients, const std::vector<bool>& wanted);
  // Whether LibTorch's settings are others than in the calls.
  bool is_under_other_settings() const { return settings_ != KernelSettings::now(); }
  // A backward ran under autocast, or under other settings than the calls.
  void note_other_modes();
  // Whether the next recording has other forms of gradients than the last one.
  bool wants_recording() const { return wants_recording_; }
  // Whether calls shall run eagerly from now on, because of what backwards have met, and why.
  bool is_refused() const { return is_refused_.load(std::memory_order_acquire); }
  const std::string& refusal() const { return refusal_; }

  static constexpr const char* kChangesInput =
      "The function changes an input in place, which its graph would not know; change a clone() of it.";
  // After a backward with create_graph.
  void refuse_second_derivatives();
  // An output that another one is made of has a hook, or is what grad() asks for.
  static constexpr const char* kHookOnFeedingOutput =
      "An output of a captured part is made of another output that has a hook or retain_grad(), or that grad() "
      "asks "
      "for, and a replay knows no gradient inside; make two parts of it.";
  void refuse_hooks_on_feeding_outputs();
  // A backward for some tensors alone needs one output, and leaves out another one with what comes after it.
  static constexpr const char* kLeftOutOutput =
      "A backward for some tensors alone (inputs=, grad()) needs an output of the captured part and not "
      "another one, "
      "and would run what is computed of that one, too; make two parts of it.";
  void refuse_left_out_outputs();
  // The gradients of the uses by the function itself, in a backward. `check` looks at the outputs first. Throws
  // where the graph is another one now. `frees`: where not null, whether the backward has freed something.
  std::vector<at::Tensor> again(const std::vector<at::Tensor>& inputs, const std::vector<PartUse>& uses,
                                const std::vector<at::Tensor>& gradients, const std::vector<bool>& wanted,
                                bool create_graph,
                                const std::function<void(const std::vector<at::Tensor>&)>& check,
                                bool* frees) const;
  // Whether again() runs on this thread. To it, another part in the function is its function.
  static bool is_running_again();
  // The number of the function that does; -1: none.
  static int64_t running_again();

 private:
  void watch_gradients(const std::vector<at::Tensor>& outputs);
  // The outputs of one call that is no replay.
  struct Watched {
    std::shared_ptr<GradientSignatures> signatures;
    std::vector<base::WeakNodePtr> nodes;
    // Which output of its node each is.
    std::vector<uint32_t> numbers;
    std::vector<bool> feed_others;
    // What is made outside of the function has this sequence number or a later one.
    uint64_t first_outside;
  };
  void arrived(const Watched& call, size_t output, const at::Tensor& gradient);
  void look_at_outputs(const Watched& call, size_t output);
  // Whether only other outputs of the part were made of this one.
  static bool is_used_inside_alone(const Watched& call, size_t output);
  void refuse(std::string reason);
  // After the function has run again: autocast keeps no cast that it has made.
  void drop_new_casts(const PartGraph& graph, const std::vector<at::Tensor>& given, uint64_t first_node) const;
  void note_outputs(const std::vector<at::Tensor>& outputs, uint64_t first_node);
  void make_placeholders(const std::vector<at::Tensor>& outputs);

  const Function function_;
  const int64_t number_;
  // Of the calls.
  const AutocastMode autocast_ = AutocastMode::now();
  const KernelSettings settings_ = KernelSettings::now();
  std::recursive_mutex mutex_;
  size_t inputs_before_casts_ = 0;
  std::vector<KeptCast> casts_;
  std::vector<PartUse> uses_;
  uint64_t nodes_ = 0;
  std::vector<std::vector<bool>> shared_nodes_;
  std::vector<std::vector<bool>> leads_;
  bool frees_a_function_ = false;
  std::vector<WeakTensor> inner_leaves_;
  std::vector<bool> differentiable_;
  std::vector<bool> views_;
  // Counters of views that the last call which was no replay returned.
  std::vector<engine::host::VersionCheck> view_versions_;
  std::vector<std::pair<std::string, uint32_t>> producers_;
  std::vector<uint64_t> producer_numbers_;
  std::optional<std::vector<at::Tensor>> outputs_;
  MetForms forms_;
  PartGradients gradients_;
  // Backwards write these, and calls read them without the lock. The reason is fixed when it is there.
  std::atomic<uint64_t> backwards_ = 0;
  std::atomic<bool> any_seen_ = false;
  std::atomic<bool> wants_recording_ = false;
  std::atomic<bool> is_refused_ = false;
  std::string refusal_;
  bool makes_graphs_ = false;
  std::vector<bool> feed_others_;
  std::vector<std::vector<bool>> made_of_;
  uint64_t calls_ = 0;
};

}  // namespace overdrive::replay
