#include "hooks/scope/saved_tensor.h"

#include "engine/base/torch_types.h"
#include "engine/host/version_check.h"
#include "forward_ad/levels/tangents.h"
#include "hooks/interface/hook_calls.h"
#include "hooks/scope/hook_scope.h"
#include "hooks/scope/hooked_save.h"

#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <utility>

namespace overdrive::hooks {

using forward_ad::CapturedTangents;
using torch::autograd::ForwardGrad;
using torch::autograd::SavedVariableHooks;
namespace impl = torch::autograd::impl;

// Present when the tensor itself is not kept, or must not own its node.
struct SavedTensor::Metadata {
  base::NodePtr grad_fn;                            // of an input that is not a leaf
  base::WeakNodePtr weak_grad_fn{base::NodePtr()};  // kInPlaceOnView
  base::NodePtr grad_accumulator;                   // of a leaf
  bool requires_grad = false;
  engine::host::VersionCheck version;
  at::TensorOptions options;  // and sizes: for the message about versions
  at::DimVector sizes;
  // Tangents: LibTorch's own level, or, of a tensor on levels of forward_ad/, all of those.
  std::shared_ptr<ForwardGrad> fw_grad;
  std::optional<CapturedTangents> tangents;

  ~Metadata() {
    if (fw_grad) fw_grad->clear();  // or the level would keep it
  }

  // The node that the unpacked tensor hangs on; null for a leaf.
  static base::NodePtr history(const SavedTensor& saved, base::Node* owner);

  // `data`: the tensor as it was unpacked.
  at::Tensor tangent(const at::Tensor& data) const {
    if (fw_grad && !fw_grad->empty()) return fw_grad->value(0);
    if (!tangents) return {};
    const c10::AutoFwGradMode enabled(true);
    return data._fw_grad(0);
  }
};

SavedTensor::SavedTensor() = default;
SavedTensor::SavedTensor(SavedTensor&& other) noexcept : SavedTensor() { *this = std::move(other); }
SavedTensor::~SavedTensor() = default;

SavedTensor& SavedTensor::operator=(SavedTensor&& other) noexcept {
  if (this == &other) return *this;
  state_ = other.state_;
  as_ = other.as_;
  is_leaf_ = other.is_leaf_;
  version_ = other.version_;
  output_nr_ = other.output_nr_;
  tensor_ = std::move(other.tensor_);
  metadata_ = std::move(other.metadata_);
  hooks_ = std::move(other.hooks_);
  other.release();  // so that unpacking it is an error
  return *this;
}

SavedTensor::SavedTensor(const std::optional<at::Tensor>& tensor, SavedAs as)
    : SavedTensor(tensor.value_or(at::Tensor()), as) {}

SavedTensor::SavedTensor(const at::Tensor& tensor, SavedAs as) : as_(as) {
  if (!tensor.defined()) return;
  TORCH_CHECK(
      !tensor.is_inference(),
      "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode "
      "in computation tracked by autograd. To work around this, you can make a clone to get a normal tensor "
      "and use it in autograd.");
  version_ = tensor._version();
  is_leaf_ = tensor.is_leaf();
  output_nr_ = tensor.output_nr();
  if (as == SavedAs::kInPlaceOnView) {
    TORCH_CHECK(!is_leaf_, "A leaf cannot be saved as the output of an in-place op on a view.");
    metadata_ = std::make_unique<Metadata>();
    metadata_->weak_grad_fn = tensor.grad_fn();
  }
  std::unique_ptr<SavedVariableHooks> hooks;
  if (at::SavedTensorDefaultHooks::is_enabled() && !tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    hooks = base::Engine::get_default_engine().get_default_saved_variable_hooks();
  }
  if (hooks != nullptr) {
    note_metadata(tensor);
    pack(std::move(hooks), tensor);
  } else if (as == SavedAs::kInput || is_leaf_) {
    state_ = State::kOriginal;
    tensor_ = tensor;
  } else {
    note_metadata(tensor);
    state_ = State::kDetached;
    tensor_ = tensor.tensor_data();
  }
}

void SavedTensor::note_metadata(const at::Tensor& tensor) {
  if (metadata_ == nullptr) metadata_ = std::make_unique<Metadata>();
  Metadata& metadata = *metadata_;
  metadata.version = engine::host::VersionCheck(tensor);
  if (is_leaf_) {
    metadata.grad_accumulator = impl::grad_accumulator(tensor);
    metadata.requires_grad = tensor.requires_grad();
  } else if (as_ == SavedAs::kInput) {
    metadata.grad_fn = tensor.grad_fn();
  }
  if (const at::Tensor& tangent = tensor._fw_grad(0); tangent.defined()) {
    CapturedTangents tangents = CapturedTangents::capture(tensor);
    if (!tangents.levels().empty()) {
      metadata.tangents = std::move(tangents);
    } else {
      metadata.fw_grad = std::make_shared<ForwardGrad>();
      metadata.fw_grad->set_value(tangent, 0);
    }
  }
}

void SavedTensor::pack(std::unique_ptr<SavedVariableHooks> hooks, const at::Tensor& tensor) {
  metadata_->options = tensor.options();
  metadata_->sizes = tensor.is_nested() ? at::IntArrayRef() : tensor.sizes();
  {
    const c10::NoGradGuard no_grad;
    const c10::VariableVersion& counter = impl::version_counter(tensor);
    const uint32_t before = counter.current_version();
    hooks->call_pack_hook(tensor);
    TORCH_CHECK(counter.current_version() == before, kPackWroteToItsInput, "Let it work on a copy.");
  }
  hooks_ = std::move(hooks);
  tensor_.reset();
  state_ = State::kPacked;
}

void SavedTensor::register_hooks(HooksPtr hooks) {
  TORCH_CHECK(hooks != nullptr, "register_hooks() was given no hooks.");
  const HookOptions options{.skip_parameters = false, .share = false, .check_in_place = true};
  register_hooks(std::make_unique<HookedSave>(std::make_shared<HookScope>(std::move(hooks), options)));
}

void SavedTensor::register_hooks(std::unique_ptr<SavedVariableHooks> hooks) {
  TORCH_CHECK(hooks != nullptr, "register_hooks() was given no hooks.");
  check_may_register();
  const bool is_original = state_ == State::kOriginal;
  if (is_original) note_metadata(tensor_);
  const at::Tensor plain = is_original ? tensor_.tensor_data() : tensor_;
  pack(std::move(hooks), plain);
}

void SavedTensor::check_may_register() const {
  TORCH_CHECK(
      state_ != State::kPacked,
      "Calling register_hooks on a saved tensor whose hooks have already been set. Hint: only one pair of "
      "hooks is allowed at a time.");
  TORCH_CHECK(
      state_ != State::kReleased,
      "Calling register_hooks on a saved tensor after it has been freed. Saved intermediate values of the "
      "graph are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to "
      "backward through the graph a second time or if you need to access saved variables after calling "
      "backward.");
  TORCH_CHECK(state_ != State::kNothing,
              "Calling register_hooks on a saved tensor with value None is forbidden");
}

void SavedTensor::release() {
  if (state_ == State::kNothing) return;
  state_ = State::kReleased;
  hooks_.reset();
  tensor_.reset();
  metadata_.reset();
}

at::Tensor SavedTensor::unpack_for(base::Node* owner) const {
  if (state_ == State::kNothing) return {};
  TORCH_CHECK(state_ != State::kReleased, torch::autograd::ERR_BACKWARD_TWICE,
              owner != nullptr ? " The saved tensor is one of " + owner->name() + "." : std::string());
  base::NodePtr grad_fn = Metadata::history(*this, owner);
  check_version(grad_fn.get());
  if (state_ == State::kOriginal) return tensor_;
  const Metadata& metadata = *metadata_;
  at::Tensor data = state_ == State::kPacked ? call_unpack(owner) : tensor_;
  if (metadata.tangents) data = metadata.tangents->restore();  // hooks let such tensors pass
  TORCH_CHECK(data.defined(), "An unpack hook returned an undefined tensor for a saved one of sizes ",
              at::IntArrayRef(metadata.sizes), owner != nullptr ? ", which belongs to " + owner->name() : "",
              ".");
  const at::Tensor tangent = metadata.tangent(data);
  if (!grad_fn && !metadata.requires_grad && !data.requires_grad() && !tangent.defined()) return data;
  at::Tensor result = grad_fn ? torch::autograd::make_variable(data, base::Edge(std::move(grad_fn), output_nr_))
                              : torch::autograd::make_variable(data, metadata.requires_grad);
  impl::set_grad_accumulator(result, base::WeakNodePtr(metadata.grad_accumulator));
  impl::set_version_counter(result, metadata.version.counter());
  if (tangent.defined()) result._set_fw_grad(tangent, /*level=*/0, /*is_inplace_op=*/false);
  return result;
}

at::Tensor SavedTensor::call_unpack(base::Node* owner) const {
  auto* ours = owner != nullptr ? dynamic_cast<HookedSave*>(hooks_.get()) : nullptr;
  return ours != nullptr ? ours->unpack_for(owner) : hooks_->call_unpack_hook();
}

base::NodePtr SavedTensor::Metadata::history(const SavedTensor& saved, base::Node* owner) {
  base::NodePtr grad_fn;
  if (saved.as_ == SavedAs::kInPlaceOnView) {
    grad_fn = saved.metadata_->weak_grad_fn.lock();
  } else if (saved.state_ == State::kOriginal) {
    grad_fn = saved.tensor_.grad_fn();
  } else {
    grad_fn = saved.metadata_->grad_fn;
  }
  if (saved.is_leaf_ || grad_fn) return grad_fn;
  TORCH_CHECK(saved.as_ != SavedAs::kInput,
              "Trying to use a saved tensor that has been detached in-place, i.e. with .detach_()."
              "This is not supported, please use out-of-place `.detach()` instead");
  TORCH_CHECK(
      owner != nullptr,
      "An output that a node saved hangs on that node, so it takes the node to unpack it: unpack(*this).");
  return owner->getptr();
}

void SavedTensor::check_version(const base::Node* producer) const {
  if (state_ == State::kPacked) {
    const Metadata& metadata = *metadata_;
    const uint32_t current = metadata.version.counter().current_version();
    if (current == version_) return;
    engine::host::refuse_changed({at::empty({0}, metadata.options), metadata.sizes, current, version_,
                                  engine::host::producer_name(producer), output_nr_});
  }
  const uint32_t current = impl::version_counter(tensor_).current_version();
  if (current != version_) {
    const at::IntArrayRef sizes = tensor_.is_nested() ? at::IntArrayRef() : tensor_.sizes();
    engine::host::refuse_changed(
        {tensor_, sizes, current, version_, engine::host::producer_name(producer), output_nr_});
  }
}

}  // namespace overdrive::hooks
