#include "test/parity/fuzz/interpreter.h"

#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>

#include <algorithm>

#include "test/parity/fuzz/functions.h"
#include "test/parity/fuzz/ops.h"
#include "test/parity/fuzz/thrown.h"

namespace overdrive::fuzz {
namespace {

constexpr int kSlots = 256;
constexpr int kLanes = 4;

// Warnings become observations, on whichever thread they are heard.
class WarningLog final : public c10::WarningHandler {
 public:
  static WarningLog& get() {
    static auto* handler = new WarningLog;
    return *handler;
  }
  void process(const c10::Warning& warning) override {
    // Anomaly mode shows where a node was made: by the engine's own code, for a node that it makes.
    const std::string& text = warning.msg();
    if (sink) sink(text.substr(0, text.find('\n')));
  }
  std::function<void(const std::string&)> sink;
};

class DeafHandler final : public c10::WarningHandler {
 public:
  static DeafHandler& get() {
    static auto* handler = new DeafHandler;
    return *handler;
  }
  void process(const c10::Warning&) override {}
};

[[noreturn]] void throw_error(int64_t k) {
  switch (k % kThrows) {
    case 0:
      TORCH_CHECK(false, "thrown by the program");
    case 1:
      throw std::runtime_error("thrown by the program");
    case 2:
      throw std::bad_alloc();
    case 3:
      TORCH_CHECK_INDEX(false, "thrown by the program");
    case 4:
      throw std::out_of_range("thrown by the program");
    case 5:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "thrown by the program");
    case 6:
      throw std::logic_error("thrown by the program");
    default:
      throw Thrown{7};
  }
}

}  // namespace

Interpreter::Interpreter(uint64_t seed, const Watch& watch, std::function<void()> on_switch, LaneScope on_lane)
    : watch_(watch),
      on_switch_(std::move(on_switch)),
      on_lane_(std::move(on_lane)),
      slots_(kSlots),
      op_of_slot_(kSlots, -1) {
  at::manual_seed(seed);
  torch::autograd::AnomalyMode::set_enabled(watch.traced);
  lanes_.resize(kLanes);
  lane_states_.resize(kLanes);
  lane_scopes_.resize(kLanes);
  WarningLog::get().sink = [this](const std::string& text) { log("warning: " + text); };
  node_event = [this](const std::string& what, int64_t id) {
    if (what != "destroyed" || sees_lifetimes()) log(c10::str("node ", id, " ", what));
  };
  bodies.clear();
}

Interpreter::~Interpreter() { finish(); }

void Interpreter::finish() {
  if (lanes_.empty()) return;
  if (lanes_[0]) {
    lanes_[0]->run([this] {
      for (Tensor& t : slots_) t.reset();
    });
  }
  for (Tensor& t : slots_) t.reset();
  hooks_.clear();
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i]) lanes_[i]->run([&] { lane_scopes_[i].reset(); });
  }
  lanes_.clear();
  bodies.clear();
  node_event = {};
  WarningLog::get().sink = {};
  torch::autograd::AnomalyMode::set_enabled(false);
  log("at the end" + alive());
}

const Tensor& Interpreter::slot(int i) const { return slots_.at(static_cast<size_t>(i)); }
Tensor& Interpreter::mutable_slot(int i) { return slots_.at(static_cast<size_t>(i)); }
void Interpreter::log(std::string line) { seen_->lines.push_back(std::move(line)); }

bool Interpreter::step(const Statement& s) {
  const auto lane = static_cast<size_t>(s.lane);
  bool done = false;
  if (!lanes_.at(lane)) {
    lanes_[lane] = std::make_unique<Lane>();
    lanes_[lane]->run([&] {
      c10::WarningUtils::set_warning_handler(&WarningLog::get());
      if (on_lane_) lane_scopes_[lane] = on_lane_();
      lane_states_[lane] = at::ThreadLocalState();
    });
  }
  lanes_[lane]->run([&] {
    const std::string before = thread_state();
    done = attempt(s, /*top=*/true);
    const std::string after = thread_state();
    if (c10::WarningUtils::get_warning_handler() != &WarningLog::get())
      log("the warning handler was left changed");
    if (after != before) log("left behind: " + after);
    at::ThreadLocalState::setThreadLocalState(lane_states_[lane]);
    c10::WarningUtils::set_warning_handler(&WarningLog::get());
  });
  return done;
}

bool Interpreter::attempt(const Statement& s, bool top) {
  try {
    return execute(s);
  } catch (...) {
    log(c10::str("statement ", s.id, " fails: ", describe(std::current_exception())));
    if (!top && (s.what == What::kThrow || (s.what == What::kBackward && s.flag))) throw;
    return false;
  }
}

bool Interpreter::execute(const Statement& s) {
  switch (s.what) {
    case What::kLeaf:
      return run_leaf(s);
    case What::kOp:
      return run_op(s);
    case What::kHook:
      return run_hook(s);
    case What::kRemoveHook:
      return run_remove_hook(s);
    case What::kBackward:
      return run_backward(s);
    case What::kCallback:
      return run_callback(s);
    case What::kThrow:
      throw_error(s.k);
    case What::kMode:
      change_mode(s.k);
      return true;
    case What::kWarn:
      TORCH_WARN("warned by statement ", s.id);
      return true;
    case What::kDrop:
      mutable_slot(s.from.at(0)).reset();
      return true;
    case What::kClearGrad:
      if (!slot(s.from.at(0)).defined()) return false;
      mutable_slot(s.from[0]).mutable_grad().reset();
      return true;
    case What::kQuery:
      query();
      return true;
    case What::kSwitch:
      if (on_switch_) on_switch_();
      return true;
  }
  return false;
}

bool Interpreter::run_leaf(const Statement& s) {
  mutable_slot(s.to) = make_leaf(s.shape, s.layout, s.dtype, s.k, s.flag);
  op_of_slot_.at(static_cast<size_t>(s.to)) = -1;
  return true;
}

bool Interpreter::run_op(const Statement& s) {
  const size_t index = op_index(s.name);
  const Op& op = ops()[index];
  variable_list in;
  for (int i : s.from) {
    if (!slot(i).defined()) return false;
    in.push_back(slot(i));
  }
  if (op.group == Group::kFunction) {
    auto kept = std::make_shared<const Statement>(s);
    bodies[s.id] = [this, kept](variable_list& g) { fire(kept, "backward", nullptr, g); };
  }
  variable_list out = op.run(in, op.group == Group::kFunction ? s.id : s.k);
  in.clear();
  for (int i = 0; i < op.results; ++i) {
    const auto to = static_cast<size_t>(s.to + i);
    slots_.at(to) = static_cast<size_t>(i) < out.size() ? out[static_cast<size_t>(i)] : Tensor();
    op_of_slot_[to] = static_cast<int>(index);
    if (slots_[to].defined()) {
      if (const auto& node = slots_[to].grad_fn()) op_of_node_[node.get()] = static_cast<int>(index);
    }
  }
  return true;
}

bool Interpreter::run_callback(const Statement& s) {
  auto kept = std::make_shared<const Statement>(s);
  Engine::get_default_engine().queue_callback([this, kept] {
    variable_list none;
    fire(kept, "callback", nullptr, none);
  });
  return true;
}

void Interpreter::change_mode(int64_t k) {
  auto& state = c10::AutogradState::get_tls_state();
  switch (k % 10) {
    case 0:
      at::GradMode::set_enabled(!at::GradMode::is_enabled());
      break;
    case 1:
      state.set_fw_grad_mode(!state.get_fw_grad_mode());
      break;
    case 2:
      state.set_inference_mode(!state.get_inference_mode());
      break;
    case 3:
      state.set_multithreading_enabled(!state.get_multithreading_enabled());
      break;
    case 4:
      state.set_view_replay_enabled(!state.get_view_replay_enabled());
      break;
    case 5:
      at::autocast::set_autocast_enabled(at::kCPU, !at::autocast::is_autocast_enabled(at::kCPU));
      break;
    case 6:
      c10::impl::tls_set_dispatch_key_included(c10::DispatchKey::TESTING_ONLY_GenericMode, true);
      break;
    case 7:
      c10::impl::tls_set_dispatch_key_excluded(c10::DispatchKey::Negative, true);
      break;
    case 8:
      c10::WarningUtils::set_warning_handler(&DeafHandler::get());
      break;
    case 9:
      at::SavedTensorDefaultHooks::disable("by the program", false);
      break;
  }
}

void Interpreter::query() {
  const auto* nodes = torch::autograd::get_current_graph_task_nodes_in_graph();
  // Stock sets what is_checkpoint_valid() reads around a node, after the hooks of one that is only captured.
  const bool in_hook = !busy_.empty();
  log(c10::str("query: nodes ", nodes != nullptr, " checkpoint ",
               in_hook || Engine::get_default_engine().is_checkpoint_valid()));
  std::string order;
  for (const Node* node : torch::autograd::get_current_graph_task_execution_order())
    order += " " + node->name();
  log("query: order" + order);
}

}  // namespace overdrive::fuzz
