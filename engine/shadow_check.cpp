#include "engine/shadow_check.h"

#include "engine/base/counters.h"
#include "engine/base/generator_states.h"
#include "engine/base/mutex.h"
#include "engine/base/no_destructor.h"
#include "engine/host/graph_task.h"
#include "engine/host/shared_object.h"
#include "engine/run/thread_context.h"

#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <unordered_set>

namespace overdrive::engine {
namespace {

using namespace torch::autograd;

// The results of a call on one engine.
struct Outcome {
  variable_list captured;
  variable_list leaf_gradients;
  std::exception_ptr error;
};

// The leaves of a call, with the gradients they had. While `this` lives they have copies, which a run may
// change.
class Leaves {
 public:
  Leaves() = default;
  ~Leaves() { put_back(); }
  Leaves(const Leaves&) = delete;
  Leaves& operator=(const Leaves&) = delete;

  void add(const at::Tensor& leaf) {
    if (!seen_.insert(leaf.unsafeGetTensorImpl()).second) return;
    tensors_.push_back(leaf);
    before_.push_back(leaf.grad());
    if (leaf.grad().defined()) leaf.mutable_grad() = leaf.grad().detach().clone();
  }
  void put_back() noexcept {
    for (size_t i = 0; i < before_.size(); ++i) tensors_[i].mutable_grad() = before_[i];
    before_.clear();
  }
  const variable_list& tensors() const { return tensors_; }

  void add_device(c10::Device device) {
    if (std::find(devices_.begin(), devices_.end(), device) == devices_.end()) devices_.push_back(device);
  }
  const std::vector<c10::Device>& devices() const { return devices_; }

 private:
  variable_list tensors_;
  std::vector<c10::Device> devices_;  // of the nodes
  variable_list before_;
  std::unordered_set<at::TensorImpl*> seen_;
};

// Whether a sum into one gradient changes another one, or what the backward begins with: copies would not.
bool any_share_memory(const variable_list& leaves, const variable_list& of_roots) {
  std::unordered_map<const c10::StorageImpl*, const at::TensorImpl*> owners;
  const auto is_shared = [&](const at::Tensor& gradient, const at::TensorImpl* owner) {
    if (!gradient.defined() || !gradient.has_storage()) return false;
    const auto [known, is_new] = owners.emplace(gradient.storage().unsafeGetStorageImpl(), owner);
    return !is_new && known->second != owner;
  };
  for (const at::Tensor& gradient : of_roots) (void)is_shared(gradient, nullptr);
  return std::any_of(leaves.begin(), leaves.end(), [&](const at::Tensor& leaf) {
    return is_shared(leaf.grad(), leaf.unsafeGetTensorImpl());
  });
}

// Adds the leaves that a call accumulates into, and the devices of its nodes. False when it has hooks, so that
// it must not run twice, or copies of its gradients would not do; no gradient is touched then.
bool add_leaves(const BackwardCall& call, Leaves& leaves) {
  variable_list found;
  for (const Edge& root : call.roots) {
    if (!root.is_valid()) continue;
    RunMemoryLease memory(thread_context());
    memory->plan.build({root.function.get(), false, call.outputs, call.accumulate_grad});
    if (memory->plan.has_hooks()) return false;
    for (const PlannedNode& planned : memory->plan.nodes) {
      leaves.add_device(planned.node->device());
      if (host::kind_of(*planned.node) != host::NodeKind::kAccumulateGrad) continue;
      found.push_back(static_cast<AccumulateGrad*>(planned.node)->variable);
    }
  }
  if (any_share_memory(found, call.gradients)) return false;
  for (const at::Tensor& leaf : found) leaves.add(leaf);
  return true;
}

// The stock half of a check. A node of it may run a backward, which comes to us.
struct StockHalf {
  base::Mutex mutex;  // nodes of several devices may run backwards at once
  base::GeneratorStates generators OVERDRIVE_GUARDED_BY(mutex);  // of the devices of all its nodes, as before
  Leaves leaves_of_nested OVERDRIVE_GUARDED_BY(mutex);
  int depth OVERDRIVE_GUARDED_BY(mutex) = 0;
  bool given_up OVERDRIVE_GUARDED_BY(mutex) = false;
};

constinit thread_local StockHalf* stock_half = nullptr;

// A run of stock for a check, on the thread that makes it. Stock runs the nodes of a device on a thread of its
// own, where the roots of the current graph task tell whose run it is.
class StockRun {
 public:
  // Without a half: that of the node around this. half() is null then where an error has ended it meanwhile.
  StockRun(const edge_list& roots, StockHalf* half) : roots_(roots) {
    const base::MutexLock lock(all().mutex);
    half_ = half != nullptr ? half : half_around();
    stock_half = half_;
    all().now.push_back(this);
    all().count = all().now.size();
  }
  ~StockRun() {
    stock_half = before_;
    const base::MutexLock lock(all().mutex);
    std::erase(all().now, this);
    all().count = all().now.size();
    all().ended.notify_all();
  }
  StockRun(const StockRun&) = delete;
  StockRun& operator=(const StockRun&) = delete;

  StockHalf* half() const { return half_; }

  static bool is_around() {
    if (stock_half != nullptr) return true;
    if (all().count == 0) return false;
    const base::MutexLock lock(all().mutex);
    return half_around() != nullptr;
  }
  // An error ends a half while a node of another device may still be inside a backward.
  static void wait_for_those_of(const StockHalf& half) {
    base::MutexLock lock(all().mutex);
    lock.wait(all().ended, [&]() OVERDRIVE_REQUIRES(all().mutex) {
      return std::none_of(all().now.begin(), all().now.end(), [&](auto* run) { return run->half_ == &half; });
    });
  }

 private:
  struct All {
    base::Mutex mutex;
    std::vector<const StockRun*> now OVERDRIVE_GUARDED_BY(mutex);
    std::condition_variable ended;
    std::atomic<size_t> count = 0;
  };
  static All& all() {
    static base::NoDestructor<All> all;
    return *all;
  }
  static StockHalf* half_around() OVERDRIVE_REQUIRES(all().mutex) {
    const GraphTask* const task = host::current_graph_task();
    if (stock_half != nullptr || task == nullptr) return stock_half;
    for (const StockRun* run : all().now) {
      if (std::equal(run->roots_.begin(), run->roots_.end(), task->graph_roots_.begin(),
                     task->graph_roots_.end(),
                     [](const Edge& edge, const Node* root) { return edge.function.get() == root; })) {
        return run->half_;
      }
    }
    return nullptr;
  }

  const edge_list& roots_;
  StockHalf* half_;
  StockHalf* const before_ = stock_half;
};

// Stock sends a nest of 60 to other threads, where we would not know it.
constexpr int kDeepestNest = 50;

struct GivenUp : std::exception {
  const char* what() const noexcept override {
    return "OVERDRIVE_CHECK gave up: this backward runs unchecked.";
  }
};

template <typename Engine>
Outcome observe(const variable_list& leaves, const Engine& engine) {
  Outcome outcome;
  try {
    outcome.captured = engine();
  } catch (...) {
    if (base::thread_is_ending()) throw;
    outcome.error = std::current_exception();
  }
  for (const at::Tensor& leaf : leaves) outcome.leaf_gradients.push_back(leaf.grad());
  return outcome;
}

variable_list execute_on_stock(const BackwardCall& call) {
  variable_list gradients = call.gradients;
  return Engine::get_base_engine().execute(call.roots, gradients, /*keep_graph=*/true, call.create_graph,
                                           call.accumulate_grad, call.outputs);
}

// Empty when it had to give up.
std::optional<Outcome> run_on_stock(const BackwardCall& call, const Leaves& leaves) {
  StockHalf half;
  {
    const base::MutexLock lock(half.mutex);
    half.generators.add(leaves.devices());
  }
  Outcome outcome = observe(leaves.tensors(), [&] {
    const auto wait = c10::make_scope_exit([&] { StockRun::wait_for_those_of(half); });
    const StockRun run(call.roots, &half);
    return execute_on_stock(call);
  });
  const base::MutexLock lock(half.mutex);
  half.generators.restore();
  if (half.given_up) return std::nullopt;
  return outcome;
}

// Not of a meta tensor, nor of a wrapper, whose memory is another tensor's.
bool has_values(const at::Tensor& gradient) {
  constexpr c10::DispatchKeySet kWrappers{c10::DispatchKey::FuncTorchBatched,
                                          c10::DispatchKey::FuncTorchGradWrapper,
                                          c10::DispatchKey::Functionalize, c10::DispatchKey::Python};
  return !gradient.is_meta() && !gradient.key_set().has_any(kWrappers);
}

// The dense values of a gradient, in order. One that is known to be zero has no memory.
at::Tensor values_of(const at::Tensor& gradient) {
  if (gradient._is_zerotensor()) return at::zeros(gradient.sizes(), gradient.options().device(at::kCPU));
  at::Tensor dense = gradient.detach().resolve_conj().resolve_neg();
  if (dense.layout() != at::kStrided) dense = dense.to_dense();
  return dense.cpu().contiguous();
}

std::string element_name(int64_t flat, at::IntArrayRef sizes) {
  std::vector<int64_t> index(sizes.size());
  for (size_t dim = sizes.size(); dim-- > 0;) {
    index[dim] = flat % sizes[dim];
    flat /= sizes[dim];
  }
  return c10::str(at::IntArrayRef(index));
}

void compare(const std::string& what, const at::Tensor& stock, const at::Tensor& ours) {
  TORCH_CHECK(stock.defined() == ours.defined(), "OVERDRIVE_CHECK: ", what, " is ",
              stock.defined() ? "defined" : "undefined", " with stock and ",
              ours.defined() ? "defined" : "undefined", " with Overdrive.");
  if (!stock.defined()) return;
  if (stock.is_nested() && ours.is_nested()) {
    const auto expected = stock.detach().unbind();
    const auto actual = ours.detach().unbind();
    TORCH_CHECK(expected.size() == actual.size(), "OVERDRIVE_CHECK: ", what, " has ", expected.size(),
                " components with stock and ", actual.size(), " with Overdrive.");
    for (size_t i = 0; i < expected.size(); ++i) {
      compare(c10::str(what, ", component ", i, ","), expected[i], actual[i]);
    }
    return;
  }
  TORCH_CHECK(stock.sizes() == ours.sizes() && stock.dtype() == ours.dtype() && stock.layout() == ours.layout(),
              "OVERDRIVE_CHECK: ", what, " is ", stock.toString(), stock.sizes(), " with stock and ",
              ours.toString(), ours.sizes(), " with Overdrive.");
  if (!has_values(stock) || !has_values(ours)) return;
  const at::Tensor expected = values_of(stock);
  const at::Tensor actual = values_of(ours);
  const size_t size = expected.element_size();
  const auto* a = static_cast<const char*>(expected.const_data_ptr());
  const auto* b = static_cast<const char*>(actual.const_data_ptr());
  for (int64_t i = 0; i < expected.numel(); ++i) {
    if (std::memcmp(a + size * i, b + size * i, size) == 0) continue;
    TORCH_CHECK(false, "OVERDRIVE_CHECK: ", what, " differs at element ", element_name(i, expected.sizes()),
                ": ", expected.flatten()[i].item(), " with stock, ", actual.flatten()[i].item(),
                " with Overdrive. Please report the program; OVERDRIVE=0 switches Overdrive off.");
  }
}

std::string leaf_name(size_t number, const at::Tensor& leaf) {
  std::string name = c10::str("the gradient of leaf ", number, " (", leaf.toString());
  if (!leaf.is_nested()) name += c10::str(leaf.sizes());
  if (!leaf.name().empty()) name += c10::str(", named '", leaf.name(), "'");
  return name + ")";
}

}  // namespace

bool shadow_check_is_due(int every) {
  // Inside a backward of stock there is nothing to compare with: the outer one is not ours.
  if (every <= 0 || host::current_graph_task() != nullptr) return false;
  static std::atomic<uint64_t> calls{0};
  return calls.fetch_add(1, std::memory_order_relaxed) % static_cast<uint64_t>(every) == 0;
}

bool inside_stock_half() { return StockRun::is_around(); }

variable_list run_inside_stock_half(const BackwardCall& call) {
  const StockRun run(call.roots, nullptr);
  if (run.half() == nullptr) throw GivenUp();
  StockHalf& half = *run.half();
  {
    const base::MutexLock lock(half.mutex);
    const bool may_run_twice = add_leaves(call, half.leaves_of_nested);
    if (!may_run_twice || half.depth == kDeepestNest) half.given_up = true;
    if (half.given_up) throw GivenUp();
    half.generators.add(half.leaves_of_nested.devices());
    ++half.depth;
  }
  const auto leave = c10::make_scope_exit([&] {
    const base::MutexLock lock(half.mutex);
    --half.depth;
  });
  return execute_on_stock(call);
}

variable_list run_with_shadow_check(const BackwardCall& call, const std::function<variable_list()>& ours) {
  Leaves leaves;
  std::optional<Outcome> expected;
  if (add_leaves(call, leaves)) expected = run_on_stock(call, leaves);
  leaves.put_back();
  if (!expected.has_value()) {
    count(base::counts::check_skipped);
    return ours();
  }
  Outcome actual = observe(leaves.tensors(), ours);
  count(base::counts::checked);
  if (actual.error) std::rethrow_exception(actual.error);
  TORCH_CHECK(!expected->error, "OVERDRIVE_CHECK: a backward fails with stock and succeeds with Overdrive.");
  for (size_t i = 0; i < actual.captured.size(); ++i) {
    compare(c10::str("result ", i), expected->captured[i], actual.captured[i]);
  }
  for (size_t i = 0; i < leaves.tensors().size(); ++i) {
    compare(leaf_name(i, leaves.tensors()[i]), expected->leaf_gradients[i], actual.leaf_gradients[i]);
  }
  return std::move(actual.captured);
}

}  // namespace overdrive::engine
