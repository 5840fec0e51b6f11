#include "hooks/scope/multi_grad_hook.h"

#include "engine/base/mutex.h"
#include "engine/base/torch_types.h"

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/graph_task.h>

#include <map>
#include <memory>
#include <optional>
#include <utility>

namespace overdrive::hooks {

namespace ag = torch::autograd;

namespace {
using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

WeakTensor weak(const at::Tensor& tensor) { return WeakTensor(tensor.getIntrusivePtr()); }

at::Tensor locked(const WeakTensor& weak) {
  auto impl = weak.lock();
  return impl ? at::Tensor(std::move(impl)) : at::Tensor();
}

// The node that a tensor's gradient comes to. The hook of a tensor lies on the tensor or on its node, so it
// must own neither: a leaf's node is asked for anew, another's is held weakly.
class GradientsNode {
 public:
  explicit GradientsNode(const at::Tensor& tensor) {
    if (tensor.is_leaf()) {
      leaf_ = weak(tensor);
    } else {
      node_.emplace(tensor.grad_fn());
    }
  }

  // Whether the backward that this thread is in runs the node.
  bool will_run() const {
    base::NodePtr node;
    if (leaf_) {
      const at::Tensor leaf = locked(*leaf_);
      if (leaf.defined()) node = ag::impl::try_get_grad_accumulator(leaf);
    } else {
      node = node_->lock();
    }
    if (!node) return false;
    const auto* wanted = ag::get_current_graph_task_exec_info();
    if (wanted->empty()) return ag::get_current_graph_task_nodes_in_graph()->count(&*node) != 0;
    const auto found = wanted->find(&*node);
    if (found == wanted->end() || !found->second.should_execute()) return false;
    TORCH_CHECK(
        !(leaf_ && found->second.captures_),
        "register_multi_grad_hook: a leaf's gradient is captured by autograd::grad(), which does not run the "
        "leaf's node, so the hook cannot know whether it comes. Use backward(), with inputs if need be.");
    return true;
  }

 private:
  std::optional<WeakTensor> leaf_;
  std::optional<base::WeakNodePtr> node_;
};

int current_task() {
  const int task = ag::get_current_graph_task_id();
  TORCH_CHECK(task != -1, "register_multi_grad_hook: a hook was called outside of a backward.");
  return task;
}

// What a hook keeps for each backward that is under way. Goes with its backward, however that ends: a final
// callback owns a ticket, and the backward's task owns its callbacks, also those that never run.
template <typename State>
class OfBackwards : public std::enable_shared_from_this<OfBackwards<State>> {
 public:
  // Calls `change` with the state of the backward that this thread is in, under the lock.
  template <typename Change>
  auto change(const Change& change) OVERDRIVE_EXCLUDES(mutex_) {
    const int task = current_task();
    std::shared_ptr<Ticket> ticket;
    {
      const base::MutexLock lock(mutex_);
      const auto found = states_.find(task);
      if (found != states_.end()) return change(found->second);
    }
    ticket = std::make_shared<Ticket>(this->weak_from_this(), task);
    base::Engine::get_default_engine().queue_callback([ticket] {});
    const base::MutexLock lock(mutex_);
    return change(states_[task]);
  }

 private:
  struct Ticket {
    Ticket(std::weak_ptr<OfBackwards> of, int number) : all(std::move(of)), task(number) {}
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;
    ~Ticket() {
      if (const auto living = all.lock()) living->end(task);
    }
    const std::weak_ptr<OfBackwards> all;
    const int task;
  };

  void end(int task) OVERDRIVE_EXCLUDES(mutex_) {
    typename std::map<int, State>::node_type ended;  // goes without the lock
    const base::MutexLock lock(mutex_);
    ended = states_.extract(task);
  }

  base::Mutex mutex_;
  std::map<int, State> states_ OVERDRIVE_GUARDED_BY(mutex_);  // by the number of the backward
};

// One hook for all its tensors, with what the backwards under way have brought.
class AllGradients {
 public:
  using Function = std::function<void(const std::vector<at::Tensor>&)>;

  AllGradients(const std::vector<at::Tensor>& tensors, Function hook) : hook_(std::move(hook)) {
    for (const at::Tensor& tensor : tensors) nodes_.emplace_back(tensor);
  }

  void take(size_t index, const at::Tensor& gradient) {
    // Asked before the lock; every call of a backward gets the same answer.
    size_t expected = 0;
    for (const GradientsNode& node : nodes_) expected += node.will_run();
    std::vector<at::Tensor> gradients;
    const bool is_last = arrived_->change([&](Arrived& arrived) {
      arrived.gradients.resize(nodes_.size());
      arrived.gradients[index] = gradient;
      if (++arrived.count < expected) return false;
      gradients = std::move(arrived.gradients);
      arrived.count = 0;
      return true;
    });
    if (is_last) hook_(gradients);
  }

 private:
  struct Arrived {
    std::vector<at::Tensor> gradients;
    size_t count = 0;
  };

  const Function hook_;
  std::vector<GradientsNode> nodes_;
  const std::shared_ptr<OfBackwards<Arrived>> arrived_ = std::make_shared<OfBackwards<Arrived>>();
};

class FirstGradient {
 public:
  explicit FirstGradient(std::function<void(const at::Tensor&)> hook) : hook_(std::move(hook)) {}

  void take(const at::Tensor& gradient) {
    const bool is_first = seen_->change([](bool& seen) { return !std::exchange(seen, true); });
    if (is_first) hook_(gradient);
  }

 private:
  const std::function<void(const at::Tensor&)> hook_;
  const std::shared_ptr<OfBackwards<bool>> seen_ = std::make_shared<OfBackwards<bool>>();
};

void check(const std::vector<at::Tensor>& tensors, bool has_hook) {
  TORCH_CHECK(has_hook, "register_multi_grad_hook: the hook is an empty function.");
  TORCH_CHECK(!tensors.empty(),
              "register_multi_grad_hook: there are no tensors, so the hook would never be called.");
  for (size_t i = 0; i < tensors.size(); ++i) {
    TORCH_CHECK(
        tensors[i].defined() && tensors[i].requires_grad(), "register_multi_grad_hook: tensor ", i,
        tensors[i].defined() ? " does not require grad, so no gradient ever comes to it." : " is undefined.");
  }
}

}  // namespace

struct MultiGradHook::Places {
  base::Mutex mutex;
  std::vector<std::pair<WeakTensor, unsigned>> all OVERDRIVE_GUARDED_BY(mutex);
};

void MultiGradHook::remove() {
  std::vector<std::pair<WeakTensor, unsigned>> all;
  {
    const base::MutexLock lock(places_->mutex);
    all.swap(places_->all);
  }
  for (const auto& [weak_tensor, place] : all) {
    const at::Tensor tensor = locked(weak_tensor);
    if (tensor.defined()) tensor.remove_hook(place);
  }
}

MultiGradHook register_multi_grad_hook(const std::vector<at::Tensor>& tensors,
                                       std::function<void(const std::vector<at::Tensor>&)> hook) {
  check(tensors, hook != nullptr);
  const auto all = std::make_shared<AllGradients>(tensors, std::move(hook));
  auto places = std::make_shared<MultiGradHook::Places>();
  const base::MutexLock lock(places->mutex);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const unsigned place =
        tensors[i].register_hook([all, i](const at::Tensor& gradient) { all->take(i, gradient); });
    places->all.emplace_back(weak(tensors[i]), place);
  }
  return MultiGradHook(std::move(places));
}

MultiGradHook register_multi_grad_hook(const std::vector<at::Tensor>& tensors,
                                       std::function<void(const at::Tensor&)> hook) {
  check(tensors, hook != nullptr);
  const auto first = std::make_shared<FirstGradient>(std::move(hook));
  auto places = std::make_shared<MultiGradHook::Places>();
  const base::MutexLock lock(places->mutex);
  for (const at::Tensor& tensor : tensors) {
    const unsigned place = tensor.register_hook([first](const at::Tensor& gradient) { first->take(gradient); });
    places->all.emplace_back(weak(tensor), place);
  }
  return MultiGradHook(std::move(places));
}

}  // namespace overdrive::hooks
