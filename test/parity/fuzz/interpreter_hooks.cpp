// The interpreter's hooks: putting them on, taking them off, and what happens in them.
#include <algorithm>

#include "test/parity/fuzz/interpreter.h"
#include "test/parity/fuzz/leaf.h"
#include "test/parity/fuzz/ops.h"

namespace overdrive::fuzz {

namespace impl = torch::autograd::impl;

// The part that every hook object shares: it says when it dies, so the order in which nodes are
// destroyed can be seen, and keeps others from changing a list of hooks that is being run.
class LoggingHook {
 public:
  LoggingHook(Interpreter& run, std::shared_ptr<const Statement> s, const NodePtr& node, std::string label)
      : run_(&run), seen_(run.seen_), s_(std::move(s)), node_(node), label_(std::move(label)) {}
  ~LoggingHook() {
    const auto seen = seen_.lock();
    if (seen && run_->sees_lifetimes()) seen->lines.push_back(label_ + " is gone");
  }
  LoggingHook(const LoggingHook&) = delete;
  LoggingHook& operator=(const LoggingHook&) = delete;

  void fire(variable_list& grads) {
    auto run = run_;
    // A tensor's hooks move on when it changes in place; the node they were put on may be gone.
    const NodePtr alive = node_.lock();
    const Node* node = alive.get();
    run->busy_.push_back(node);
    const Tensor& owner = s_ ? run->slot(s_->from[0]) : undefined();
    run->busy_.push_back(owner.defined() ? owner.unsafeGetTensorImpl() : nullptr);
    struct Leave {
      Interpreter* run;
      ~Leave() { run->busy_.resize(run->busy_.size() - 2); }
    } leave{run};
    if (s_) {
      run->fire(s_, hook_name(s_->hook), node, grads);
      run->hook_fired(*s_);
    } else {
      run->log(label_ + run->surroundings(node) + run->see_gradients(grads));
      const auto op = run->op_of_node_.find(node);
      const uint32_t bit = 1U << (label_.rfind("watch after", 0) == 0 ? kNodePostHook : kNodePreHook);
      run->features_ |= bit;
      if (op != run->op_of_node_.end()) run->reached_.by_op[static_cast<size_t>(op->second)] |= bit;
    }
  }
  void note(const char* what, const variable_list& tensors) {
    run_->log(label_ + what + run_->see_gradients(tensors));
  }
  bool watches() const { return !s_; }

 private:
  static const Tensor& undefined() {
    static const auto* none = new Tensor;
    return *none;
  }
  Interpreter* const run_;
  const std::weak_ptr<Observation> seen_;
  const std::shared_ptr<const Statement> s_;  // null: a watching hook
  const base::WeakNodePtr node_;
  const std::string label_;
};

namespace {

struct PreHook final : torch::autograd::FunctionPreHook {
  template <typename... Args>
  explicit PreHook(Args&&... args) : hook(std::forward<Args>(args)...) {}
  variable_list operator()(const variable_list& grads) override {
    variable_list copy = grads;
    hook.fire(copy);
    return copy;
  }
  LoggingHook hook;
};

struct PostHook final : torch::autograd::FunctionPostHook {
  template <typename... Args>
  explicit PostHook(Args&&... args) : hook(std::forward<Args>(args)...) {}
  variable_list operator()(const variable_list& outputs, const variable_list& inputs) override {
    hook.note(" was given", inputs);
    variable_list copy = outputs;
    hook.fire(copy);
    return copy;
  }
  LoggingHook hook;
};

struct AccumulateHook final : torch::autograd::PostAccumulateGradHook {
  template <typename... Args>
  explicit AccumulateHook(Args&&... args) : hook(std::forward<Args>(args)...) {}
  void operator()(const Tensor& t) override {
    variable_list grads = {t.grad()};
    hook.fire(grads);
  }
  LoggingHook hook;
};

template <typename Hook, typename List>
bool watched(const List& hooks) {
  return std::any_of(hooks.begin(), hooks.end(), [](const auto& each) {
    const auto* hook = dynamic_cast<const Hook*>(each.get());
    return hook && hook->hook.watches();
  });
}

}  // namespace

void Interpreter::watch_nodes(const std::vector<NodePtr>& nodes) {
  for (const NodePtr& node : nodes) {
    if (watch_.pre_hooks && !watched<PreHook>(node->pre_hooks())) {
      const std::string label = c10::str("watch before ", next_watch_++, " ", node->name());
      node->add_pre_hook(std::make_unique<PreHook>(*this, nullptr, node, label));
    }
    if (watch_.post_hooks && !watched<PostHook>(node->post_hooks())) {
      const std::string label = c10::str("watch after ", next_watch_++, " ", node->name());
      node->add_post_hook(std::make_unique<PostHook>(*this, nullptr, node, label));
    }
  }
}

bool Interpreter::run_hook(const Statement& s) {
  const Tensor& t = slot(s.from.at(0));
  if (!t.defined() || !t.requires_grad()) return false;
  const NodePtr node = t.is_leaf() ? impl::grad_accumulator(t) : t.grad_fn();
  const auto busy = [&](const void* what) {
    return std::find(busy_.begin(), busy_.end(), what) != busy_.end();
  };
  if (!node || busy(node.get()) || busy(t.unsafeGetTensorImpl())) return false;
  // Stock moves the hook of a later output to the node of an in-place op under its old number, which that node
  // need not have; it then reads beyond the gradients.
  if (s.hook == HookKind::kRetainsGrad && t.output_nr() != 0) return false;
  auto kept = std::make_shared<const Statement>(s);
  const std::string label = c10::str("hook ", s.id);
  Handle handle;
  handle.kind = s.hook;
  handle.slot = s.from[0];
  handle.node = base::WeakNodePtr(node);
  switch (s.hook) {
    case HookKind::kTensor: {
      auto hook = std::make_shared<LoggingHook>(*this, kept, node, label);
      handle.index = t.register_hook([hook](const Tensor& grad) -> Tensor {
        variable_list grads = {grad};
        hook->fire(grads);
        return grads[0];
      });
      break;
    }
    case HookKind::kRetainsGrad:
      t.retain_grad();
      break;
    case HookKind::kNodePre: {
      auto hook = std::make_unique<PreHook>(*this, kept, node, label);
      handle.key = reinterpret_cast<uintptr_t>(hook.get());
      node->add_pre_hook(std::move(hook));
      break;
    }
    case HookKind::kNodePost:
      handle.key = node->add_post_hook(std::make_unique<PostHook>(*this, kept, node, label));
      break;
    case HookKind::kPostAccumulate:
      if (!t.is_leaf()) return false;
      impl::set_post_acc_grad_hooks(t, std::make_unique<AccumulateHook>(*this, kept, node, label));
      break;
    case HookKind::kCount_:
      return false;
  }
  hooks_[s.id] = handle;
  return true;
}

bool Interpreter::run_remove_hook(const Statement& s) {
  const auto it = hooks_.find(static_cast<int>(s.k));
  if (it == hooks_.end()) return false;
  const Handle handle = it->second;
  const NodePtr node = handle.node.lock();
  const Tensor& t = slot(handle.slot);
  if (!node || !t.defined()) return false;
  for (const void* what : busy_) {
    if (what == node.get() || what == t.unsafeGetTensorImpl()) return false;
  }
  switch (handle.kind) {
    case HookKind::kTensor:
      t.remove_hook(handle.index);
      break;
    case HookKind::kNodePre:
      std::erase_if(node->pre_hooks(),
                    [&](const auto& hook) { return reinterpret_cast<uintptr_t>(hook.get()) == handle.key; });
      break;
    case HookKind::kNodePost:
      node->del_post_hook(handle.key);
      break;
    case HookKind::kPostAccumulate:
      impl::set_post_acc_grad_hooks(t, nullptr);
      break;
    case HookKind::kRetainsGrad:
    case HookKind::kCount_:
      return false;
  }
  hooks_.erase(it);  // a second removal would find whatever lives at this address by then
  return true;
}

void Interpreter::hook_fired(const Statement& s) {
  constexpr Feature kFeatureOf[] = {kTensorHook, kRetainsGradHook, kNodePreHook, kNodePostHook,
                                    kPostAccumulateHook};
  const uint32_t bit = 1U << kFeatureOf[static_cast<int>(s.hook)];
  features_ |= bit;
  const int op = op_of_slot_.at(static_cast<size_t>(s.from[0]));
  if (op >= 0) reached_.by_op[static_cast<size_t>(op)] |= bit;
}

std::string Interpreter::surroundings(const Node* node) {
  const int id = torch::autograd::get_current_graph_task_id();
  if (id >= 0) task_names_.emplace(id, static_cast<int>(task_names_.size()));
  std::string text = c10::str(" [task ", id < 0 ? -1 : task_names_[id], " keep ",
                              id < 0 ? false : torch::autograd::get_current_graph_task_keep_graph(), " seq ",
                              at::sequence_number::peek(), " ", thread_state());
  const NodePtr current = torch::autograd::get_current_node();
  text += !current ? " no current node" : node == current.get() ? " current" : " current " + current->name();
  if (node) {
    text += " " + node->name() + " computes";
    for (size_t i = 0; i < node->num_outputs(); ++i) text += node->task_should_compute_output(i) ? '1' : '0';
  }
  return text + "]";
}

std::string Interpreter::alive() const {
  std::string text = " alive:";
  for (const auto& [number, weak] : gradients_) {
    if (!weak.expired()) text += c10::str(" ", number);
  }
  return text;
}

std::string Interpreter::see_gradients(const variable_list& grads) {
  std::string text;
  StorageNames names;
  for (const Tensor& g : grads) {
    text += " {" + describe(g);
    if (!g.defined()) {
      text += "}";
      continue;
    }
    for (size_t i = 0; g.has_storage() && i < slots_.size(); ++i) {
      const Tensor& t = slots_[i];
      if (!t.defined()) continue;
      if (t.has_storage() && t.storage().is_alias_of(g.storage())) text += c10::str(" shares t", i);
      // Not t.grad(), which warns where there is none to be expected.
      const auto* meta = impl::get_autograd_meta(t);
      if (meta && meta->grad_.defined() && meta->grad_.has_storage() &&
          meta->grad_.storage().is_alias_of(g.storage())) {
        text += c10::str(" shares t", i, ".grad");
      }
    }
    text += " " + names.name(g) + "}";
  }
  if (sees_lifetimes()) text += alive();
  if (!watch_.lifetimes) return text;
  for (const Tensor& g : grads) {
    if (g.defined()) gradients_.emplace_back(next_gradient_++, g.getIntrusivePtr());
  }
  return text;
}

void Interpreter::fire(const std::shared_ptr<const Statement>& s, const char* what, const Node* node,
                       variable_list& grads) {
  log(c10::str("statement ", s->id, " ", what, surroundings(node), see_gradients(grads)));
  if (std::find(running_.begin(), running_.end(), s->id) != running_.end() || fires_left_ == 0) return;
  --fires_left_;
  running_.push_back(s->id);
  if (s->to != kNoSlot) mutable_slot(s->to) = grads.empty() ? Tensor() : grads[0];
  struct Leave {
    Interpreter* run;
    int gradient_slot;
    ~Leave() {
      run->running_.pop_back();
      if (gradient_slot != kNoSlot) run->mutable_slot(gradient_slot).reset();
    }
  } leave{this, s->to};
  for (const Statement& inner : s->body) attempt(inner, /*top=*/false);
  if (grads.empty()) return;
  if (s->gives == Gives::kUndefined) grads[0] = Tensor();
  if (s->gives != Gives::kSlot) return;
  const bool unchecked = s->what == What::kHook && s->hook == HookKind::kNodePre;
  grads[0] = unchecked ? pre_hook_result(slot(s->given), grads[0]) : slot(s->given);
}

}  // namespace overdrive::fuzz
