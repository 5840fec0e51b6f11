#include "checkpoint/region/write_observer.h"

#include "engine/base/no_destructor.h"
#include "engine/base/process_mutex.h"
#include "engine/operators/keys.h"
#include "engine/operators/tensors_in.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string_view>
#include <vector>

namespace overdrive::checkpoint {

namespace {

thread_local WriteObserver* tls_innermost = nullptr;

constexpr c10::DispatchKeySet kBelow(c10::DispatchKeySet::FULL_AFTER, engine::keys::kWrites);

bool is_declared_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// The schema of batch norm does not say that it writes to these.
bool is_running_statistic(const c10::Argument& argument) {
  return argument.name() == "running_mean" || argument.name() == "running_var";
}

// An operator in place, or with an output that is given: its write may record a gradient.
bool is_in_place(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  return (!arguments.empty() && is_declared_written(arguments[0])) ||
         std::any_of(schema.returns().begin(), schema.returns().end(),
                     [](const c10::Argument& value) { return value.alias_info() != nullptr; });
}

bool any_requires_grad(at::ArrayRef<c10::IValue> values) {
  bool any = false;
  const auto look_at = [&](const at::Tensor& tensor) {
    any = any || (tensor.defined() && tensor.requires_grad());
  };
  for (const c10::IValue& value : values) engine::for_each_tensor(value, look_at);
  return any;
}

// Whether batch norm takes the statistics of its batch; otherwise it only reads the running ones.
bool updates_statistics(const c10::FunctionSchema& schema, at::ArrayRef<c10::IValue> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string& name = schema.arguments()[i].name();
    if (name == "training" || name == "train" || name == "use_input_stats") {
      return values[i].isBool() && values[i].toBool();
    }
  }
  return true;
}

void tell(const c10::FunctionSchema& schema, at::ArrayRef<c10::IValue> values) {
  if (at::GradMode::is_enabled() && is_in_place(schema) && any_requires_grad(values)) return;
  const auto one = [](const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage() || tensor.requires_grad()) return;
    for (WriteObserver* observer = WriteObserver::innermost(); observer != nullptr;
         observer = observer->outer()) {
      if (observer->is_for_now()) observer->will_write(tensor);
    }
  };
  for (size_t i = 0; i < values.size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (is_declared_written(argument) ||
        (is_running_statistic(argument) && updates_statistics(schema, values))) {
      engine::for_each_tensor(values[i], one);
    }
  }
}

void run_observed(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (WriteObserver::innermost() != nullptr) {
    tell(op.schema(), torch::jit::last(*stack, op.schema().arguments().size()));
  }
  op.redispatchBoxed(keys & kBelow, stack);
}

// Operators that change nothing but a tensor's metadata are left alone, and those that take names of
// dimensions: these cannot be called by way of a stack.
bool is_observed(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  const std::string_view name = schema.name();
  if (op.hasTag(at::Tag::inplace_view) || schema.overload_name().find("name") != std::string::npos)
    return false;
  if (name == "aten::set_data" || name == "aten::requires_grad_" || name == "aten::retain_grad") return false;
  return std::any_of(schema.arguments().begin(), schema.arguments().end(), [](const c10::Argument& argument) {
    return is_declared_written(argument) || is_running_statistic(argument);
  });
}

class Kernels final {
 public:
  static Kernels& get() {
    static base::NoDestructor<Kernels> kernels;
    return *kernels;
  }

  bool are_there() OVERDRIVE_EXCLUDES(mutex_) {
    if (has_new_ && !is_refused_) add();
    return !is_refused_;
  }

 private:
  friend class base::NoDestructor<Kernels>;

  // Called under the dispatcher's lock, so the kernels are added later.
  class Listener final : public c10::OpRegistrationListener {
   public:
    explicit Listener(Kernels& kernels) : kernels_(kernels) {}
    void onOperatorRegistered(const c10::OperatorHandle& op) override {
      const base::MutexLock lock(kernels_.mutex_);
      kernels_.new_.push_back(op);
      kernels_.has_new_ = true;
    }
    void onOperatorDeregistered(const c10::OperatorHandle& op) override {
      const base::MutexLock lock(kernels_.mutex_);
      std::erase(kernels_.new_, op);
    }

   private:
    Kernels& kernels_;
  };

  Kernels() {
    auto& dispatcher = c10::Dispatcher::singleton();
    try {
      engine::keys::claim(engine::keys::kWrites);
      handles_.push_back(dispatcher.registerFallback(engine::keys::kWrites,
                                                     c10::KernelFunction::makeFallthrough(), "Overdrive"));
    } catch (const c10::Error& error) {
      is_refused_ = true;
      TORCH_WARN("Recomputations of checkpointed regions write to buffers again: ", error.msg());
      return;
    }
    handles_.push_back(dispatcher.addRegistrationListener(std::make_unique<Listener>(*this)));
  }

  void add() OVERDRIVE_EXCLUDES(mutex_) {
    const base::MutexLock adding(adding_);
    std::vector<c10::OperatorHandle> found;
    {
      const base::MutexLock lock(mutex_);
      found.swap(new_);
    }
    for (const c10::OperatorHandle& op : found) {
      if (!is_observed(op)) continue;
      handles_.push_back(c10::Dispatcher::singleton().registerImpl(
          op.operator_name(), engine::keys::kWrites,
          c10::KernelFunction::makeFromBoxedFunction<&run_observed>(), std::nullopt, nullptr, "Overdrive"));
    }
    const base::MutexLock lock(mutex_);
    has_new_ = !new_.empty();
  }

  bool is_refused_ = false;
  std::atomic<bool> has_new_{false};
  base::ProcessMutex adding_{
      "kernels that observe writes"};  // the first observer of another thread waits until the kernels are there
  std::vector<c10::RegistrationHandleRAII> handles_ OVERDRIVE_GUARDED_BY(adding_);
  base::ProcessMutex mutex_{"new operators to observe"};
  std::vector<c10::OperatorHandle> new_ OVERDRIVE_GUARDED_BY(mutex_);
};

}  // namespace

WriteObserver* WriteObserver::innermost() { return tls_innermost; }

WriteObserver::WriteObserver()
    : outer_(tls_innermost),
      graph_task_(torch::autograd::get_current_graph_task_id()),
      included_(Kernels::get().are_there() ? c10::DispatchKeySet(engine::keys::kWrites)
                                           : c10::DispatchKeySet()) {
  tls_innermost = this;
}

WriteObserver::~WriteObserver() { tls_innermost = outer_; }

bool WriteObserver::is_for_now() const { return graph_task_ == torch::autograd::get_current_graph_task_id(); }

}  // namespace overdrive::checkpoint
