// The tensors of a recording: from a tensor to its value and its memory, and the bounds of the inputs.
#include "engine/base/tensor_version.h"
#include "replay/record/compare.h"
#include "replay/record/lazy_bits.h"
#include "replay/record/recorder.h"
#include "replay/record/refusals.h"

#include <c10/util/StringUtil.h>

#include <algorithm>

namespace overdrive::replay {

namespace {

// Larger memory is no wrapped number.
constexpr size_t kConstantBytes = 16;

template <typename T>
void append_bytes(std::string& key, const T& field) {
  key.append(reinterpret_cast<const char*>(&field), sizeof(T));
}

}  // namespace

Argument Recorder::argument(const c10::IValue& value, const std::string& name, std::vector<bool>* fresh) {
  Argument result;
  const auto add = [&](const at::Tensor& tensor) {
    bool is_fresh = false;
    result.values.push_back(tensor.defined() ? this->value(tensor, name, fresh != nullptr, &is_fresh) : -1);
    if (fresh) fresh->push_back(is_fresh);
  };
  if (value.isTensor()) {
    if (!value.toTensor().defined()) {
      result.constant = value;
      if (fresh) fresh->push_back(false);
      return result;
    }
    if (!fresh && value.toTensor().is_meta()) return result;  // of an operator that makes no memory
    if (!fresh && value.toTensor()._is_zerotensor()) {
      result.constant = at::_efficientzerotensor(value.toTensor().sizes(), value.toTensor().options());
      return result;
    }
    result.kind = Argument::Kind::kTensor;
    add(value.toTensor());
  } else if (value.isTensorList()) {
    result.kind = Argument::Kind::kTensors;
    for (const at::Tensor& tensor : value.toTensorVector()) add(tensor);
  } else if (value.isList() && std::any_of(value.toListRef().begin(), value.toListRef().end(),
                                           [](const c10::IValue& element) { return element.isTensor(); })) {
    result.kind = Argument::Kind::kOptionalTensors;
    for (const c10::IValue& element : value.toListRef()) {
      add(element.isTensor() ? element.toTensor() : at::Tensor());
    }
  } else {
    if (!comparable(value))
      refuse(c10::str(name, " has ", text_of(value), " as an argument, which is not understood."));
    result.constant = value;
    result.is_passed = !fresh && value.isDouble() && is_passed(value.toDouble());
  }
  return result;
}

bool Recorder::is_passed(double number) {
  if (!passed_numbers_.has(number)) return false;
  passed_numbers_.keep_for_backward(number);
  return true;
}

int Recorder::value(const at::Tensor& tensor, const std::string& name, bool result, bool* fresh) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  // In a view of what the recording knows.
  const bool is_lazy =
      takes_lazy_bits_ && has_lazy_bit(tensor) &&
      (result || has_made(tensor) || views_of_outside_.contains(impl) || of_inputs_.contains(impl));
  if (std::string reason = refusal_of(is_lazy ? as_stored(tensor) : tensor, name); !reason.empty()) {
    refuse(std::move(reason));
    return -1;
  }
  const int index = memory(tensor, result, fresh);
  const int64_t offset = offset_of(tensor, index, name);
  Memory& memory = program_.memories[index];
  const int now = static_cast<int>(program_.operators.size());
  if (memory.first < 0) memory.first = now;
  memory.last = now;
  std::string key;
  append_bytes(key, index);
  append_bytes(key, offset);
  append_bytes(key, tensor.scalar_type());
  append_bytes(key, impl->is_wrapped_number());
  append_bytes(key, tensor.requires_grad());
  for (const int64_t size : tensor.sizes()) append_bytes(key, size);
  for (const int64_t stride : tensor.strides()) append_bytes(key, stride);
  const auto [known, added] = values_.emplace(std::move(key), static_cast<int>(program_.values.size()));
  if (added) {
    program_.values.push_back({.memory = index,
                               .offset = offset,
                               .sizes = c10::DimVector(tensor.sizes()),
                               .strides = c10::DimVector(tensor.strides()),
                               .type = tensor.scalar_type(),
                               .wrapped = impl->is_wrapped_number(),
                               .requires_grad = tensor.requires_grad()});
  }
  if (!result && memory.origin == Origin::kOutside) note_outside(tensor, known->second);
  if (memory.origin == Origin::kOutside && result && !outside_seen_.contains(impl) &&
      views_of_outside_.insert(impl).second) {
    kept_addresses_.emplace_back(tensor.getIntrusivePtr());
  }
  if (memory.origin == Origin::kInput && result && of_inputs_.emplace(impl, index).second) {
    kept_addresses_.emplace_back(tensor.getIntrusivePtr());
  }
  return known->second;
}

int Recorder::memory(const at::Tensor& tensor, bool result, bool* fresh) {
  if (const int input = input_memory(tensor, result); input >= 0) {
    if (fresh) *fresh = false;
    return input;
  }
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  const auto [known, added] = memories_.emplace(storage, static_cast<int>(program_.memories.size()));
  if (fresh) *fresh = added;
  if (!added) return known->second;
  Memory memory{.weak = tensor.storage().getWeakStorageImpl(),
                .raw = storage,
                .origin = result ? Origin::kMade : Origin::kOutside,
                .bytes = storage->nbytes(),
                .address = storage->data()};
  if (!result && tensor.dim() == 0 && memory.bytes <= kConstantBytes) {
    memory.constant.assign(static_cast<const char*>(memory.address), memory.bytes);
    memory.is_passed = tensor.unsafeGetTensorImpl()->is_wrapped_number() &&
                       tensor.scalar_type() == at::kDouble && is_passed(*tensor.const_data_ptr<double>());
  }
  program_.memories.push_back(std::move(memory));
  return known->second;
}

void Recorder::note_outside(const at::Tensor& tensor, int value) {
  auto* impl = tensor.unsafeGetTensorImpl();
  if (!outside_seen_.insert(impl).second) return;
  if (tensor.requires_grad() && tensor.is_leaf()) {
    required_.emplace_back(tensor.getIntrusivePtr());
    const at::Tensor& gradient = tensor.grad();
    if (gradient.defined() && gradient.has_storage())
      gradients_before_.insert(gradient.storage().unsafeGetStorageImpl());
  }
  if (is_in_autocast_context_ && tensor.requires_grad() && !tensor.is_leaf()) note_cast_from_before(tensor);
  program_.outside.push_back({.weak = WeakTensor(tensor.getIntrusivePtr()),
                              .raw = impl,
                              .value = value,
                              .version_before = base::version_of(tensor)});
}

bool Recorder::switches_off_a_leaf() const {
  return std::any_of(required_.begin(), required_.end(), [](const WeakTensor& weak) {
    const at::Tensor leaf(weak.lock());
    return leaf.defined() && !leaf.requires_grad();
  });
}

void Recorder::note_given(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.device().is_cpu() || tensor.layout() != at::kStrided ||
      !tensor.has_storage()) {
    return;
  }
  given_.try_emplace(tensor.storage().unsafeGetStorageImpl(), tensor.storage().getWeakStorageImpl(),
                     WeakTensor(tensor.getIntrusivePtr()));
}

void Recorder::note_input(const at::Tensor& input, int index) {
  const int memory = static_cast<int>(program_.memories.size());
  if (!of_inputs_.emplace(input.unsafeGetTensorImpl(), memory).second) return;
  auto* storage = input.storage().unsafeGetStorageImpl();
  const size_t begin = input.storage_offset() * input.element_size();
  const size_t end = end_of(input.sizes(), input.strides(), input.storage_offset(), input.element_size());
  spans_.push_back({storage, begin, std::max(begin, end), memory});
  program_.memories.push_back({.weak = input.storage().getWeakStorageImpl(),
                               .raw = storage,
                               .origin = Origin::kInput,
                               .bytes = std::max(begin, end) - begin,
                               .address = static_cast<const char*>(storage->data()) + begin,
                               .input = index});
}

// The input that the tensor came from, or -1. A result came from the operator's argument on the same storage. A
// tensor that no operator made is from outside, whatever memory it has.
int Recorder::input_memory(const at::Tensor& tensor, bool result) {
  if (const auto known = of_inputs_.find(tensor.unsafeGetTensorImpl()); known != of_inputs_.end()) {
    return known->second;
  }
  const auto* storage = tensor.storage().unsafeGetStorageImpl();
  if (!result || !noted_) {
    program_.input_aliased |=
        std::any_of(spans_.begin(), spans_.end(), [&](const Span& span) { return span.storage == storage; });
    return -1;
  }
  for (const Argument& in : noted_->in) {
    for (const int value : in.values) {
      if (value < 0 || program_.memory_of(value).raw != storage) continue;
      return program_.memory_of(value).origin == Origin::kInput ? program_.values[value].memory : -1;
    }
  }
  return -1;
}

// A tensor on an input's memory that died with the call was made of the input without an operator, as data()
// does it, unless a tensor from outside is on that memory, too.
void Recorder::adopt_passing_copies() {
  for (const auto& [storage, index] : memories_) {
    if (program_.memories[index].origin != Origin::kOutside || has_owner(index)) continue;
    const Span* found = nullptr;
    for (const Span& span : spans_) {
      if (span.storage != storage || !holds_all(span, index)) continue;
      if (found) refuse("Two inputs share memory, and the function reaches it in a third way; give clones.");
      found = &span;
    }
    if (found) adopt(*found, index);
  }
}

bool Recorder::has_owner(int memory) const {
  return std::any_of(program_.outside.begin(), program_.outside.end(), [&](const OutsideTensor& outside) {
    return program_.values[outside.value].memory == memory && !outside.weak.expired();
  });
}

bool Recorder::leaves_new_gradient() const {
  return std::any_of(program_.outside.begin(), program_.outside.end(), [&](const OutsideTensor& outside) {
    const at::Tensor leaf(outside.weak.lock());
    if (!leaf.defined() || !leaf.is_leaf() || !leaf.requires_grad()) return false;
    const at::Tensor& gradient = leaf.grad();
    if (!gradient.defined() || !gradient.has_storage()) return false;
    const auto known = memories_.find(gradient.storage().unsafeGetStorageImpl());
    return known != memories_.end() && program_.memories[known->second].origin == Origin::kMade;
  });
}

void Recorder::note_owners(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !tensor.has_storage()) continue;
    program_.leaves.emplace_back(tensor.getIntrusivePtr());
    owners_.try_emplace(tensor.storage().unsafeGetStorageImpl(), WeakTensor(tensor.getIntrusivePtr()));
  }
}

// The guard then looks at the owner, as if an operator had been given it.
void Recorder::find_owners() {
  for (size_t i = 0; i < program_.memories.size() && !owners_.empty(); ++i) {
    const Memory& memory = program_.memories[i];
    if (memory.origin != Origin::kOutside || memory.weak.expired() || has_owner(static_cast<int>(i))) continue;
    const auto known = owners_.find(memory.raw);
    const at::Tensor owner(known == owners_.end() ? nullptr : known->second.lock());
    const int last = memory.last;
    if (owner.defined()) value(owner, "A passing copy", false);
    program_.memories[i].last = last;
  }
}

bool Recorder::holds_all(const Span& span, int memory) const {
  return std::all_of(program_.values.begin(), program_.values.end(), [&](const Value& value) {
    const size_t element = c10::elementSize(value.type), begin = value.offset * element;
    return value.memory != memory ||
           (begin >= span.begin && value.end() <= span.end && (begin - span.begin) % element == 0);
  });
}

void Recorder::adopt(const Span& span, int memory) {
  Memory &copy = program_.memories[memory], &input = program_.memories[span.memory];
  for (const Operator& op : program_.operators) {
    const auto counts = [&](const Argument& in) {
      return in.is_tensor() && in.values[0] >= 0 && program_.values[in.values[0]].memory == memory;
    };
    if (!op.name.starts_with("aten::as_strided") || !counts(op.in[0])) continue;
    if (span.begin > 0)
      refuse(c10::str(op.name, " counts from the begin of an input's memory; give its clone()."));
    program_.begin_of_storage.push_back(input.input);
  }
  for (Value& value : program_.values) {
    if (value.memory == memory) value.offset -= static_cast<int64_t>(span.begin / c10::elementSize(value.type));
  }
  input.written |= std::exchange(copy.written, false);
  copy.origin = Origin::kInput;
  copy.input = input.input;
  copy.bytes = input.bytes;
  copy.address = input.address;
}

// A replay has a copy of the input's elements, and not of what lies around them.
int64_t Recorder::offset_of(const at::Tensor& tensor, int memory, const std::string& name) {
  const Memory& in = program_.memories[memory];
  if (in.origin != Origin::kInput) return tensor.storage_offset();
  const Span& span =
      *std::find_if(spans_.begin(), spans_.end(), [&](const Span& each) { return each.memory == memory; });
  const auto element = static_cast<int64_t>(tensor.element_size());
  const int64_t begin = tensor.storage_offset() * element - static_cast<int64_t>(span.begin);
  const size_t end = end_of(tensor.sizes(), tensor.strides(), tensor.storage_offset(), tensor.element_size());
  if (end > 0 && (begin < 0 || end > span.end || begin % element != 0)) {
    refuse(c10::str(name, " reaches beyond the elements of an input; give the whole tensor as the input."));
    return 0;
  }
  if (name.starts_with("aten::as_strided")) {
    if (span.begin > 0) {
      refuse(c10::str(name,
                      " counts from the begin of an input's memory, where the input does not begin; give "
                      "the input's clone()."));
    }
    program_.begin_of_storage.push_back(in.input);
  }
  return begin / element;
}

}  // namespace overdrive::replay
