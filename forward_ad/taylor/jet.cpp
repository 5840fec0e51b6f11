#include "forward_ad/taylor/jet.h"

#include "engine/base/no_destructor.h"
#include "engine/base/process_mutex.h"
#include "engine/operators/tensors_in.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>

#include <atomic>
#include <utility>

namespace overdrive::forward_ad::taylor {
namespace {

// A copy of a mark is no mark: it may have another shape.
struct Marked final : c10::BackendMeta {
  explicit Marked(Derivatives given) : derivatives(std::move(given)) {}
  c10::intrusive_ptr<c10::BackendMeta> clone(const c10::intrusive_ptr<c10::BackendMeta>&) const override {
    return {};
  }

  const Derivatives derivatives;
};

at::Tensor mark_of(const at::Tensor& value, Derivatives derivatives) {
  at::Tensor mark(value.unsafeGetTensorImpl()->shallow_copy_and_detach(
      /*version_counter=*/0, /*allow_tensor_metadata_change=*/false));
  mark.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<Marked>(std::move(derivatives)));
  return mark;
}

struct Reason {
  base::ProcessMutex mutex{"reason of a Taylor fallback"};
  std::string text OVERDRIVE_GUARDED_BY(mutex);
};
Reason& reason() {
  static base::NoDestructor<Reason> reason;
  return *reason;
}

// The node that ran when the pass began.
std::atomic<const void*> node_around = nullptr;

const void* node_here() { return torch::autograd::get_current_node().get(); }

bool has_derivatives(const c10::IValue& argument) {
  bool any = false;
  engine::for_each_tensor(argument,
                          [&](const at::Tensor& tensor) { any = any || derivatives_of(tensor) != nullptr; });
  return any;
}

Rules all_rules() {
  Rules made;
  add_linear_jets(made);
  add_product_jets(made);
  add_elementwise_jets(made);
  add_activation_jets(made);
  return made;
}

const Rules& rules() {
  static base::NoDestructor<Rules> rules(all_rules());
  return *rules;
}

std::atomic<int> passes = 0;

bool run_rule(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (passes.load(std::memory_order_relaxed) == 0) return false;
  bool any = false;
  for (const c10::IValue& argument : torch::jit::last(*stack, op.schema().arguments().size()))
    any = any || has_derivatives(argument);
  if (!any) return false;
  if (rules().run(op, stack)) return true;
  if (!op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd))
    give_up(c10::str(op.schema().operator_name(), " has no rule for two derivatives at once"));
  return false;
}

}  // namespace

const Derivatives* derivatives_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  if (node_here() != node_around.load(std::memory_order_relaxed)) give_up("a backward runs in the function");
  const at::Tensor& mark = tensor._fw_grad(0);
  if (!mark.defined()) return nullptr;
  auto* marked = dynamic_cast<const Marked*>(mark.unsafeGetTensorImpl()->get_backend_meta());
  if (marked == nullptr) give_up("a tensor was made by other means than operators with a rule");
  return &marked->derivatives;
}

at::Tensor with_derivatives(at::Tensor value, const Derivatives& derivatives) {
  if (!at::isFloatingType(value.scalar_type())) {
    if (value.is_complex()) give_up("a result is complex");
    return value;
  }
  value._set_fw_grad(mark_of(value, derivatives), 0, /*is_inplace_op=*/false);
  return value;
}

at::Tensor input_of_pass(const at::Tensor& value, const at::Tensor& direction) {
  return at::_make_dual(value, mark_of(value, {direction, {}}), 0);
}

void give_up(const std::string& why) {
  {
    base::MutexLock lock(reason().mutex);
    reason().text = why;
  }
  TORCH_CHECK(false, "The pass for a second derivative cannot go on: ", why, ".");
}

void Rules::add(const char* name, Rule rule) {
  const std::string full = std::string("aten::") + name;
  const size_t dot = full.find('.');
  const auto op = c10::Dispatcher::singleton().findSchema(
      {full.substr(0, dot), dot == std::string::npos ? "" : full.substr(dot + 1)});
  if (op.has_value()) by_schema_.emplace(&op->schema(), std::move(rule));
}

bool Rules::run(const c10::OperatorHandle& op, torch::jit::Stack* stack) const {
  const auto found = by_schema_.find(&op.schema());
  if (found == by_schema_.end()) return false;
  if (found->second.boxed != nullptr) {
    found->second.boxed(op, stack);
  } else {
    found->second.unboxed.callBoxed(op, c10::DispatchKeySet(), stack);
  }
  return true;
}

Pass::Pass() {
  detail::register_kernel_above_all();
  detail::operator_rules_of_pass.store(&run_rule, std::memory_order_release);
  node_around = node_here();
  passes.fetch_add(1);
  base::MutexLock lock(reason().mutex);
  reason().text.clear();
}

Pass::~Pass() { passes.fetch_sub(1); }

std::string Pass::given_up_because() {
  base::MutexLock lock(reason().mutex);
  return reason().text;
}

}  // namespace overdrive::forward_ad::taylor
