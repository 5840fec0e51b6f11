// The interpreter's backwards: making the call, looking on, writing down what came of it.
#include <ATen/record_function.h>

#include <set>
#include <unordered_set>

#include "test/parity/fuzz/interpreter.h"
#include "test/support/typed_node.h"

namespace overdrive::fuzz {

namespace impl = torch::autograd::impl;

bench::TensorBytes& tensor_bytes() {
  static auto* counter = new bench::TensorBytes;  // tensors in statics give their memory back after main
  return *counter;
}

namespace {

// Where the RecordFunction callback writes; it cannot carry a pointer of its own.
Observation* events_go_to = nullptr;

struct EventName final : at::ObserverContext {
  std::string name;
};

std::unique_ptr<at::ObserverContext> event_begins(const at::RecordFunction& event) {
  const std::string_view name = event.name();
  const bool engine = name.find("evaluate_function") != std::string_view::npos;
  // Overdrive's own pair around a backward, which stock does not have.
  if (name.find("overdrive::backward") != std::string_view::npos) return nullptr;
  if (!events_go_to || (!engine && event.scope() != at::RecordScope::BACKWARD_FUNCTION)) return nullptr;
  auto context = std::make_unique<EventName>();
  context->name = c10::str(name, " seq ", event.seqNr(), " scope ", static_cast<int>(event.scope()));
  events_go_to->lines.push_back("event begins: " + context->name);
  return context;
}

void event_ends(const at::RecordFunction&, at::ObserverContext* context) {
  if (context && events_go_to)
    events_go_to->lines.push_back("event ends: " + static_cast<EventName*>(context)->name);
}

class EventScope {
 public:
  EventScope(bool on, Observation& seen) : on_(on) {
    if (!on_) return;
    events_go_to = &seen;
    handle_ = at::addGlobalCallback(at::RecordFunctionCallback(&event_begins, &event_ends));
  }
  ~EventScope() {
    if (!on_) return;
    at::removeCallback(handle_);
    events_go_to = nullptr;
  }
  EventScope(const EventScope&) = delete;
  EventScope& operator=(const EventScope&) = delete;

 private:
  const bool on_;
  at::CallbackHandle handle_ = 0;
};

std::optional<bool> as_optional(Flag flag) {
  if (flag == Flag::kDefault) return std::nullopt;
  return flag == Flag::kYes;
}

}  // namespace

bool Interpreter::run_backward(const Statement& s) {
  if (backward_depth_ > 3) return false;
  variable_list roots;
  for (int i : s.from) roots.push_back(slot(i));
  return backward_depth_ == 0 ? run_outermost(s, roots) : run_nested(s, roots);
}

// A custom Function's node holds its lock while it is applied: a nested backward that comes back to it
// waits for ever, on stock too. Such a program is not one.
bool Interpreter::would_reenter(const variable_list& roots) {
  for (const NodePtr& node : walk(roots)) {
    if (std::find(nested_in_.begin(), nested_in_.end(), node.get()) != nested_in_.end()) return true;
  }
  return false;
}

bool Interpreter::run_nested(const Statement& s, const variable_list& roots) {
  nested_in_.push_back(torch::autograd::get_current_node().get());
  struct Leave {
    std::vector<const Node*>& nodes;
    ~Leave() { nodes.pop_back(); }
  } leave{nested_in_};
  if (would_reenter(roots)) return false;
  features_ |= 1U << kNested;
  log(c10::str("backward ", s.id, " begins"));
  try {
    keep_results(s, call_backward(s, roots));
  } catch (...) {
    error_under_way_ = true;
    throw;
  }
  return true;
}

bool Interpreter::run_outermost(const Statement& s, const variable_list& roots) {
  std::vector<const Node*> reached;
  {
    const auto nodes = walk(roots);
    features_ = features_of(s, nodes);
    if (watch_.anomaly) features_ |= 1U << kAnomaly;
    watch_nodes(nodes);
    for (const NodePtr& node : nodes) reached.push_back(node.get());
  }  // from here on the run alone decides how long nodes live
  const EventScope events(watch_.events, *seen_);
  log(c10::str("backward ", s.id, " begins"));
  tensor_bytes().restart_peak();
  const int64_t before = tensor_bytes().now();
  variable_list results;
  std::exception_ptr error;
  try {
    if (watch_.anomaly) torch::autograd::AnomalyMode::set_enabled(true, /*check_nan=*/true);
    const auto seen = look_on(s, roots);
    results = call_backward(s, roots);
    if (seen) seen(features_);
  } catch (...) {
    error = std::current_exception();
    features_ |= 1U << kThrowing;
    error_under_way_ = true;
  }
  torch::autograd::AnomalyMode::set_enabled(watch_.traced);
  if (error_under_way_) empty_queue_of_stock();
  error_under_way_ = false;
  seen_->peaks.push_back(tensor_bytes().peak() - before);
  if (!error) keep_results(s, std::move(results));
  count_reached(reached);
  snapshot();
  if (error) std::rethrow_exception(error);
  return true;
}

// As call_backward() reads the statement.
std::function<void(uint32_t)> Interpreter::look_on(const Statement& s, const variable_list& roots) {
  if (!onlooker_) return nullptr;
  variable_list used, inputs;
  for (const Tensor& t : roots) {
    if (t.defined()) used.push_back(t);
    if (s.call.entry == Entry::kTensorBackward) break;
  }
  for (int i : s.call.inputs) {
    if (s.call.entry != Entry::kExecute || (slot(i).defined() && slot(i).requires_grad()))
      inputs.push_back(slot(i));
  }
  return onlooker_(used, inputs, s.call.entry == Entry::kTensorBackward || s.call.entry == Entry::kBackward);
}

void Interpreter::keep_results(const Statement& s, variable_list results) {
  for (size_t i = 0; i < results.size(); ++i) {
    log(c10::str("backward ", s.id, " gives ", describe(results[i])));
    if (s.to != kNoSlot) mutable_slot(s.to + static_cast<int>(i)) = std::move(results[i]);
  }
  log(c10::str("backward ", s.id, " ends"));
}

void Interpreter::count_reached(const std::vector<const Node*>& nodes) {
  reached_.backward(features_);
  // A hook's bit was given to the ops whose nodes had it.
  constexpr uint32_t kOfOneNode =
      1U << kTensorHook | 1U << kRetainsGradHook | 1U << kNodePreHook | 1U << kNodePostHook;
  for (const Node* node : nodes) {
    const auto op = op_of_node_.find(node);
    if (op == op_of_node_.end()) continue;
    reached_.by_op[static_cast<size_t>(op->second)] |= (features_ & ~kOfOneNode) | kReachedAtAll;
  }
}

variable_list Interpreter::call_backward(const Statement& s, const variable_list& roots) {
  const BackwardCall& call = s.call;
  struct Depth {
    int& depth;
    explicit Depth(int& d) : depth(++d) {}
    ~Depth() { --depth; }
  } inside(backward_depth_);
  variable_list gradients, inputs;
  for (int i : call.gradients) gradients.push_back(i == kNoSlot ? Tensor() : slot(i));
  for (int i : call.inputs) inputs.push_back(slot(i));
  const auto keep = as_optional(call.keep_graph);
  switch (call.entry) {
    case Entry::kTensorBackward:
      if (roots.empty() || !roots[0].defined()) return {};
      roots[0].backward(gradients.empty() ? Tensor() : gradients[0], keep, call.create_graph,
                        inputs.empty() ? std::optional<at::TensorList>() : at::TensorList(inputs));
      return {};
    case Entry::kBackward:
      torch::autograd::backward(roots, gradients, keep, call.create_graph, inputs);
      return {};
    case Entry::kGrad:
      return torch::autograd::grad(roots, inputs, gradients, keep, call.create_graph, call.allow_unused);
    case Entry::kExecute: {
      edge_list root_edges, input_edges;
      for (const Tensor& t : roots) {
        if (t.defined()) root_edges.push_back(impl::gradient_edge(t));
      }
      for (const Tensor& t : inputs) {
        if (t.defined() && t.requires_grad()) input_edges.push_back(impl::gradient_edge(t));
        if (!input_edges.empty() && !input_edges.back().function) return {};  // stock reads a null pointer
      }
      for (const Edge& edge : root_edges) {
        if (!edge.function) return {};
      }
      gradients.resize(root_edges.size());
      for (const Tensor& g : gradients) {
        // Stock ends the process: its root node describes its inputs in a noexcept function.
        if (root_edges.size() != 1 && !g.defined()) return {};
      }
      return Engine::get_default_engine().execute(root_edges, gradients, keep.value_or(call.create_graph),
                                                  call.create_graph, /*accumulate_grad=*/inputs.empty(),
                                                  input_edges);
    }
  }
  return {};
}

std::vector<NodePtr> Interpreter::walk(const variable_list& roots) {
  std::vector<NodePtr> found;
  std::unordered_set<const Node*> known;
  const auto add = [&](const NodePtr& node) {
    if (node && known.insert(node.get()).second) found.push_back(node);
  };
  for (const Tensor& t : roots) {
    if (t.defined() && t.requires_grad()) add(impl::gradient_edge(t).function);
  }
  for (size_t i = 0; i < found.size(); ++i) {
    const NodePtr node = found[i];  // found grows
    for (const Edge& edge : node->next_edges()) add(edge.function);
  }
  return found;
}

namespace {

// Ready after everything that the queue may hold.
struct LastNode final : Node {
  LastNode() : Node(/*sequence_nr=*/0) { add_input_metadata(at::zeros({})); }
  variable_list apply(variable_list&&) override { return {}; }
};

}  // namespace

void Interpreter::empty_queue_of_stock() {
  Engine::get_base_engine().execute({Edge(overdrive::test::make_typed_node<LastNode>(), 0)}, {at::zeros({})},
                                    false, false, true, {});
}

uint32_t Interpreter::features_of(const Statement& s, const std::vector<NodePtr>& nodes) {
  uint32_t bits = 0;
  std::set<uint64_t> threads;
  if (!s.call.inputs.empty()) bits |= 1U << kPruned;
  if (s.call.create_graph) bits |= 1U << kCreateGraph;
  for (const NodePtr& node : nodes) {
    threads.insert(node->thread_id());
    const std::string name = node->name();
    if (name == "CopySlices" || name.rfind("AsStridedBackward", 0) == 0) bits |= 1U << kInPlaceOnView;
    if (node->retains_grad_hooks().empty()) continue;
    bits |= 1U << kRetainsGradHook;
    const auto op = op_of_node_.find(node.get());
    if (op != op_of_node_.end()) reached_.by_op[static_cast<size_t>(op->second)] |= 1U << kRetainsGradHook;
  }
  if (threads.size() > 1) bits |= 1U << kThreads;
  return bits;
}

void Interpreter::snapshot() {
  StorageNames names;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Tensor& t = slots_[i];
    if (!t.defined()) continue;
    std::string line = c10::str("  t", i, " ", describe(t), " ", names.name(t));
    const auto* meta = impl::get_autograd_meta(t);
    if (meta && meta->grad_.defined()) line += " grad " + describe(meta->grad_) + " " + names.name(meta->grad_);
    log(line);
  }
  log(" " + alive());
}

}  // namespace overdrive::fuzz
