#include "forward_ad/drivers/reverse.h"

#include "engine/base/no_destructor.h"
#include "engine/operators/keys.h"
#include "forward_ad/drivers/functional_call.h"
#include "forward_ad/drivers/kernel_above_all.h"
#include "forward_ad/layers/layers.h"
#include "forward_ad/levels/bare_level.h"

#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/library.h>

#include <algorithm>
#include <string_view>
#include <type_traits>
#include <unordered_map>

namespace overdrive::forward_ad::detail {

// The list of a thread's debug infos is part of its state, so a recomputation of a checkpointed region finds
// the tensors of its forward.
class Substitution final : public c10::DebugInfoBase, public std::enable_shared_from_this<Substitution> {
 public:
  struct Given {
    std::string name;
    at::Tensor own;  // keeps its address
    at::Tensor given;
    bool has_derivative;
  };

  explicit Substitution(std::shared_ptr<Substitution> around)
      : around_(std::move(around)), grad_mode_(c10::GradMode::is_enabled()) {}

  void add(Given given) {
    const auto* key = given.own.unsafeGetTensorImpl();
    const auto [found, added] = by_own_.emplace(key, given);
    TORCH_CHECK(added || found->second.given.is_same(given.given), "functional_call: \"", found->second.name,
                "\" and \"", given.name,
                "\" are one tensor of the module, but two tensors were given for them.");
  }

  // The tensor to use, or null.
  const at::Tensor* find(const at::Tensor& tensor) const {
    const auto found = by_own_.find(tensor.unsafeGetTensorImpl());
    if (found == by_own_.end()) return around_ ? around_->find(tensor) : nullptr;
    const Given& given = found->second;
    TORCH_CHECK(
        !given.has_derivative || !grad_mode_ || c10::GradMode::is_enabled(), "functional_call: \"", given.name,
        "\" is used where no gradient is recorded, so the gradient of the given tensor would be ",
        "lost. If a torch::autograd::Function uses it, derive that from CustomJvp or DoubleVjp; if a ",
        "NoGradGuard is around, give a tensor that requires no gradient; a checkpointed region must be of the "
        "form on demand.");
    return &given.given;
  }

  void open() {
    c10::ThreadLocalDebugInfo::_push(kind(), shared_from_this());
    place_ = c10::ThreadLocalDebugInfo::current();
  }
  // Another user of the list may have put an entry on top that ends later. Then this one stays until that goes.
  void close() {
    if (c10::ThreadLocalDebugInfo::current() == place_) c10::ThreadLocalDebugInfo::_pop(kind());
    place_.reset();
  }
  static Substitution* innermost() {
    return static_cast<Substitution*>(c10::ThreadLocalDebugInfo::get(kind()));
  }

 private:
  static c10::DebugInfoKind kind() {
    static constexpr std::string_view kName = "OVERDRIVE_SUBSTITUTION";
    return kind_of<c10::DebugInfoKind>(kName);
  }
  // Older versions of the host number the kinds.
  template <typename Kind>
  static Kind kind_of(const std::string_view& name) {
    if constexpr (std::is_enum_v<Kind>) {
      return static_cast<Kind>(0xd6);
    } else {
      return Kind(&name);
    }
  }

  const std::shared_ptr<Substitution> around_;
  const bool grad_mode_;
  std::unordered_map<const c10::TensorImpl*, Given> by_own_;
  std::shared_ptr<c10::ThreadLocalDebugInfo> place_;  // of the thread that opened it
};

namespace {
using engine::keys::kAboveAll;

// Whether a tensor of the list was replaced.
template <typename Element>
bool substitute_in(c10::IValue& value, c10::List<Element> list, const Substitution& substitution) {
  bool any = false;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::optional<at::Tensor> tensor = list.get(i);
    const at::Tensor* given = tensor && tensor->defined() ? substitution.find(*tensor) : nullptr;
    if (given != nullptr) list.set(i, *given);
    any = any || given != nullptr;
  }
  if (any) value = std::move(list);
  return any;
}

bool substitute_in(c10::IValue& value, const Substitution& substitution) {
  if (value.isTensorList()) return substitute_in(value, value.toTensorList().copy(), substitution);
  if (value.isOptionalTensorList())
    return substitute_in(value, value.toOptionalTensorList().copy(), substitution);
  if (!value.isTensor() || !value.toTensor().defined()) return false;
  const at::Tensor* given = substitution.find(value.toTensor());
  if (given != nullptr) value = *given;
  return given != nullptr;
}

// With other tensors, other kernels may be due, so the operator is called anew; without this key, since a given
// tensor may be another one of the module's own.
void run_substituted(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  constexpr c10::DispatchKeySet kBelow(c10::DispatchKeySet::FULL_AFTER, kAboveAll);
  const Substitution* substitution = Substitution::innermost();
  bool any = false;
  if (substitution != nullptr) {
    const size_t count = op.schema().arguments().size();
    for (size_t i = stack->size() - count; i < stack->size(); ++i)
      any = substitute_in((*stack)[i], *substitution) || any;
  }
  const OperatorRules next = operator_rules_of_pass.load(std::memory_order_acquire);
  if (next != nullptr && next(op, stack)) return;
  if (!any) return op.redispatchBoxed(keys & kBelow, stack);
  const c10::impl::ExcludeDispatchKeyGuard once((c10::DispatchKeySet(kAboveAll)));
  op.callBoxed(stack);
}

}  // namespace

// Kept for good: the dispatcher may be asked while the process ends.
void register_kernel_above_all() {
  struct Registration {
    torch::Library fallback{torch::Library::IMPL, "_", kAboveAll, __FILE__, __LINE__};
    Registration() {
      engine::keys::claim(kAboveAll);
      fallback.fallback(torch::CppFunction::makeFromBoxedFunction<&run_substituted>());
    }
  };
  static base::NoDestructor<Registration> registration;
}

namespace {
// On any layer, or on LibTorch's level 0.
bool may_have_derivative(at::Tensor tensor) {
  return tensor.requires_grad() || plain_tangent(innermost_of(tensor)).defined() ||
         living_wrapper(tensor) != nullptr;
}

}  // namespace

void substitute_in(Tensors& tensors) {
  const Substitution* substitution = Substitution::innermost();
  if (substitution == nullptr || !c10::impl::tls_is_dispatch_key_included(kAboveAll)) return;
  for (at::Tensor& tensor : tensors) {
    const at::Tensor* given = tensor.defined() ? substitution->find(tensor) : nullptr;
    if (given != nullptr) tensor = *given;
  }
}

namespace {
std::string names_of(const ModuleTensors& own) {
  std::string names;
  for (const auto& [name, tensor] : own) names += (names.empty() ? "" : ", ") + name;
  return names.empty() ? "It has none" : "It has " + names;
}

std::shared_ptr<Substitution> substitution_of(const ModuleTensors& own, const NamedTensors& given) {
  Substitution* around = Substitution::innermost();
  auto substitution = std::make_shared<Substitution>(around != nullptr ? around->shared_from_this() : nullptr);
  for (const auto& [name, tensor] : given) {
    const auto found =
        std::find_if(own.begin(), own.end(), [&](const auto& named) { return named.first == name; });
    TORCH_CHECK(found != own.end(), "functional_call: the module has no parameter or buffer \"", name, "\". ",
                names_of(own), ".");
    TORCH_CHECK(tensor.defined(), "functional_call: the tensor given for \"", name,
                "\" is undefined. Leave the name out to use the module's own.");
    TORCH_CHECK(tensor.sizes() == found->second.sizes(), "functional_call: \"", name, "\" has shape ",
                found->second.sizes(), " in the module, but a tensor of shape ", tensor.sizes(),
                " was given. They must be equal.");
    TORCH_CHECK(
        c10::GradMode::is_enabled() || !plain_tangent(tensor).defined(), "functional_call: \"", name,
        "\" has a tangent of forward mode and grad mode is off. A torch::autograd::Function would lose the ",
        "tangent then and nobody could tell. Leave grad mode on here.");
    substitution->add(
        {name, found->second, tensor, may_have_derivative(tensor) || found->second.requires_grad()});
  }
  return substitution;
}

}  // namespace

SubstitutionScope::SubstitutionScope(const ModuleTensors& own, const NamedTensors& given)
    : substitution_(substitution_of(own, given)),
      was_included_(c10::impl::tls_is_dispatch_key_included(kAboveAll)) {
  register_kernel_above_all();
  substitution_->open();
  c10::impl::tls_set_dispatch_key_included(kAboveAll, true);
}

SubstitutionScope::~SubstitutionScope() {
  c10::impl::tls_set_dispatch_key_included(kAboveAll, was_included_);
  substitution_->close();
}

}  // namespace overdrive::forward_ad::detail
