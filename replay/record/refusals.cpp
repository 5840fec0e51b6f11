#include "replay/record/refusals.h"

#include "engine/operators/facts.h"

#include <ATen/core/enum_tag.h>
#include <c10/util/StringUtil.h>

#include <string_view>

namespace overdrive::replay {

namespace {

using c10::str;

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// aten::add.Tensor -> add
std::string_view plain_name_of(std::string_view name) {
  name.remove_prefix(std::min(name.find("::") + 2, name.size()));
  return name.substr(0, name.find('.'));
}

// x[i] has the sizes of the indices, but a mask among these picks as many elements as it has ones.
bool is_index_without_mask(const std::string& name, at::ArrayRef<c10::IValue> arguments) {
  if (name != "aten::index.Tensor") return false;
  const auto indices = arguments[1].toListRef();
  return std::none_of(indices.begin(), indices.end(), [](const c10::IValue& index) {
    return index.isTensor() &&
           (index.toTensor().scalar_type() == at::kBool || index.toTensor().scalar_type() == at::kByte);
  });
}

}  // namespace

std::string refusal_of(const std::string& name) {
  if (!name.starts_with("aten::") &&
      !is_one_of(name, {"overdrive::sgd_", "overdrive::adam_", "overdrive::fused_adam_", "overdrive::adagrad_",
                        "overdrive::adamax_", "overdrive::nadam_", "overdrive::radam_", "overdrive::apart"})) {
    return str(name,
               " is not an operator of LibTorch, so nobody has said what it reads and writes; "
               "leave it outside the captured function.");
  }
  if (engine::facts_of(name).moves_memory) {
    return str(
        name,
        " gives a tensor other memory in the middle of the step; copy values into the tensor instead (copy_).");
  }
  return "";
}

std::string refusal_of(const at::Tensor& tensor, const std::string& name) {
  using c10::DispatchKey;
  // The keys of an ordinary dense tensor; any other key stands for a wrapper, a lazy bit or another backend.
  static const c10::DispatchKeySet ordinary = c10::DispatchKeySet(
      {DispatchKey::CPU, DispatchKey::ADInplaceOrView, DispatchKey::AutogradCPU, DispatchKey::AutocastCPU});
  if (tensor.layout() != at::kStrided) {
    return str(name, " has a tensor of layout ", tensor.layout(), "; only dense tensors can be replayed.");
  }
  if (!tensor.device().is_cpu()) {
    return str(name, " has a tensor on ", tensor.device(), "; only steps on the CPU can be replayed.");
  }
  if (!ordinary.has_all(tensor.key_set()) || tensor.unsafeGetTensorImpl()->is_python_dispatch() ||
      !tensor.has_storage()) {
    return str(name, " has a tensor that is not ordinary (", tensor.key_set(),
               "); only dense tensors can be replayed.");
  }
  return "";
}

bool answers(const c10::OperatorHandle& handle, const std::string& name, at::ArrayRef<c10::IValue> arguments) {
  if (handle.hasTag(at::Tag::data_dependent_output) || name == "overdrive::apart") return true;
  return handle.hasTag(at::Tag::dynamic_output_shape) && !is_index_without_mask(name, arguments);
}

std::string title_of_answer(const std::string& name) {
  if (name == "overdrive::apart") return "A function that runs apart";
  return name == "aten::_local_scalar_dense"
             ? "item(), or an if that asks a tensor (aten::_local_scalar_dense),"
             : name;
}

Refusal refusal_of_what_died(const std::string& name, bool is_gradient) {
  if (is_gradient) {
    return {
        str(name,
            " uses a gradient that was there before the call and that the call takes away; capture what makes "
            "it, too, or keep it: zero_grad(false) (Python: set_to_none=False)."),
        name, RefusalKind::kGradientDied};
  }
  if (name == "aten::lift_fresh") {
    return {
        "torch.tensor(), torch.from_numpy() or an index makes a tensor of an array of more than 1 MiB in the "
        "middle "
        "of the step; make the tensor outside of the function.",
        name, RefusalKind::kDied};
  }
  return {str(name,
              " uses memory that was there before the call and died in it, as from_blob() or a tensor that was "
              "replaced; keep the tensor and copy new values into it."),
          name, RefusalKind::kDied};
}

std::string refusal_of_host_result(const std::string& name) {
  if (is_one_of(plain_name_of(name),
                {"_fused_sdp_choice", "is_same_size", "_has_same_storage_numel", "is_pinned",
                 "_has_compatible_shallow_copy_type", "is_set_to", "can_cast", "promote_types"})) {
    return "";
  }
  return str(
      name,
      " returns a number to the program in the middle of the step; leave it outside the captured function.");
}

}  // namespace overdrive::replay
