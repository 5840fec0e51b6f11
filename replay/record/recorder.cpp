#include "replay/record/recorder.h"

#include "engine/base/no_destructor.h"
#include "replay/plan/memory_plan.h"
#include "replay/record/compare.h"

#include <ATen/Context.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>

namespace overdrive::replay {

namespace {

// Below autograd, views' and Python's keys, and above the choice of a backend, so that factories are seen too.
// The host keeps the key for a mode that C++ programs do not have.
constexpr auto kKey = c10::DispatchKey::Fake;
// Larger memory is no wrapped number.
constexpr size_t kConstantBytes = 16;

thread_local Recorder* active_recorder = nullptr;
// Operators of recordings that ran on other threads: state that a recording carries to a thread includes the
// key.
std::atomic<uint64_t> foreign_operators{0};

void fallback(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, c10::Stack* stack) {
  // What a kernel calls in turn is the kernel's own business.
  const c10::impl::ExcludeDispatchKeyGuard inside(kKey);
  const auto next = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
  if (Recorder* recorder = Recorder::active()) {
    recorder->operator_called(handle, next, *stack);
  } else {
    foreign_operators.fetch_add(1, std::memory_order_relaxed);
    handle.redispatchBoxed(next, stack);
  }
}

void register_fallback() {
  static const base::NoDestructor<torch::Library> library([] {
    torch::Library made(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    made.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
    return made;
  }());
}

std::string full_name(const c10::OperatorHandle& handle) {
  const auto& name = handle.operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

bool is_factory_without_values(const std::string& name) {
  return name.starts_with("aten::empty.") || name == "aten::empty_like" || name == "aten::empty_strided" ||
         name == "aten::new_empty" || name == "aten::new_empty_strided";
}

// Arguments that an operator changes although its schema does not say so.
c10::ArrayRef<int> hidden_writes(const std::string& name) {
  static constexpr std::array<int, 2> running_statistics{3, 4}, updated{1, 2};
  if (name == "aten::native_batch_norm") return running_statistics;
  if (name == "aten::batch_norm_update_stats") return updated;
  return {};
}

bool writes_argument(const c10::Argument& argument) {
  const c10::AliasInfo* alias = argument.alias_info();
  if (!alias) return false;
  const auto& inner = alias->containedTypes();
  return alias->isWrite() ||
         std::any_of(inner.begin(), inner.end(), [](const auto& type) { return type.isWrite(); });
}

// Whether the argument, which it writes, is not read.
bool overwrites(const Operator& op, size_t argument) {
  static const std::unordered_set<std::string_view> in_place{
      "aten::zero_",       "aten::fill_.Scalar", "aten::fill_.Tensor",     "aten::copy_",
      "aten::normal_",     "aten::uniform_",     "aten::bernoulli_.float", "aten::bernoulli_.Tensor",
      "aten::random_",     "aten::random_.to",   "aten::random_.from",     "aten::exponential_",
      "aten::log_normal_", "aten::cauchy_",      "aten::geometric_"};
  return op.handle.schema().arguments()[argument].is_out() || in_place.contains(op.name);
}

template <typename T>
void append(std::string& key, const T& field) {
  key.append(reinterpret_cast<const char*>(&field), sizeof(T));
}

// Whether the thread's operators are noted, undone at the end of the scope.
struct Recording {
  explicit Recording(Recorder* recorder) { active_recorder = recorder; }
  ~Recording() { active_recorder = nullptr; }
  c10::impl::IncludeDispatchKeyGuard included{kKey};
};

}  // namespace

Recorder::Recorder(Program& program) : program_(program) {
  TORCH_INTERNAL_ASSERT(!active_recorder, "A recording is under way on this thread.");
  register_fallback();
  foreign_before_ = foreign_operators.load(std::memory_order_relaxed);
}

Recorder::~Recorder() = default;

Recorder* Recorder::active() { return active_recorder; }

void Recorder::pause(bool paused) {
  if (active_recorder) c10::impl::tls_set_dispatch_key_included(kKey, !paused);
}

void Recorder::refuse(std::string reason) {
  if (program_.refusal.empty()) program_.refusal = std::move(reason);
}

std::vector<at::Tensor> Recorder::run(const Function& function, const std::vector<at::Tensor>& inputs) {
  std::vector<int64_t> versions;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto* storage = inputs[i].storage().unsafeGetStorageImpl();
    const auto [known, added] = memories_.emplace(storage, static_cast<int>(program_.memories.size()));
    of_inputs_.insert(inputs[i].unsafeGetTensorImpl());
    versions.push_back(inputs[i].is_inference() ? 0 : inputs[i]._version());
    note_reach(inputs[i], known->second);
    if (!added) continue;
    program_.memories.push_back({.weak = inputs[i].storage().getWeakStorageImpl(),
                                 .raw = inputs[i].storage().unsafeGetStorageImpl(),
                                 .origin = Origin::kInput,
                                 .bytes = storage->nbytes(),
                                 .address = storage->data(),
                                 .input = static_cast<int>(i)});
  }
  std::vector<at::Tensor> results;
  {
    const Recording recording(this);
    results = function(inputs);
  }
  // The graph dies with its outputs, and with it what it saved, before anything is asked for what lives on.
  for (at::Tensor& result : results) {
    if (result.defined()) result = result.detach();
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    program_.input_bumps.push_back(inputs[i].is_inference() ? 0 : inputs[i]._version() - versions[i]);
    if (inputs[i].requires_grad()) {
      refuse("The function calls requires_grad_() on an input; call it on input.detach().");
    }
  }
  finish(results);
  return results;
}

void Recorder::operator_called(const c10::OperatorHandle& handle, c10::DispatchKeySet next, c10::Stack& stack) {
  std::string name = full_name(handle);
  if (!program_.refusal.empty() || name.starts_with("profiler::")) {
    handle.redispatchBoxed(next, &stack);
    return;
  }
  const auto& schema = handle.schema();
  if (std::string reason = refusal_of(handle, name, torch::jit::last(stack, schema.arguments().size()));
      !reason.empty()) {
    refuse(std::move(reason));
    handle.redispatchBoxed(next, &stack);
    return;
  }
  Operator op{.handle = handle, .name = std::move(name), .grad_mode = at::GradMode::is_enabled()};
  const size_t arguments = schema.arguments().size();
  for (size_t i = stack.size() - arguments; i < stack.size(); ++i) {
    op.in.push_back(argument(stack[i], op.name, nullptr));
  }
  note_writes(op);
  const bool is_view =
      !schema.is_mutable() && std::any_of(schema.returns().begin(), schema.returns().end(),
                                          [](const auto& result) { return result.alias_info(); });
  if (!is_view && !is_factory_without_values(op.name)) note_host_values(op);
  handle.redispatchBoxed(next, &stack);
  bool any_tensor = false, host_result = false;
  for (size_t i = stack.size() - schema.returns().size(); i < stack.size(); ++i) {
    Argument out = argument(stack[i], op.name, &op.fresh);
    any_tensor |= out.kind != Argument::Kind::kConstant;
    host_result |= out.kind == Argument::Kind::kConstant && !stack[i].isTensor();
    op.out.push_back(std::move(out));
  }
  if (host_result) {
    if (std::string reason = refusal_of_host_result(op.name); !reason.empty()) refuse(std::move(reason));
  }
  const bool any_fresh = std::find(op.fresh.begin(), op.fresh.end(), true) != op.fresh.end();
  const bool filled = at::globalContext().deterministicAlgorithms();
  op.vanishes = op.writes.empty() && !schema.is_mutable() && !any_fresh && (any_tensor || host_result) &&
                !is_checked_result(op.name);
  if (is_factory_without_values(op.name) && !filled) op.vanishes = true;
  if (!op.vanishes) {
    const auto mark = [&](int value) {
      if (value >= 0) program_.memories[program_.values[value].memory].has_values = true;
    };
    for (const Argument& out : op.out) std::for_each(out.values.begin(), out.values.end(), mark);
    for (const int index : op.writes) program_.memories[index].has_values = true;
  }
  check_memory(op);
  program_.operators.push_back(std::move(op));
}

void Recorder::note_reach(const at::Tensor& input, int memory) {
  const auto address = reinterpret_cast<uintptr_t>(input.const_data_ptr());
  const size_t begin = input.storage_offset() * input.element_size();
  const Reach reach{begin, end_of(input.sizes(), input.strides(), input.storage_offset(), input.element_size()),
                    address % kArenaAlignment == begin};
  const auto [known, added] = reach_.emplace(memory, reach);
  if (added) return;
  known->second = {std::min(known->second.begin, reach.begin), std::max(known->second.end, reach.end), false};
}

// A replay has a copy of the input's elements, and not of what lies around them.
void Recorder::check_reach(const Value& value, const std::string& name) {
  const size_t begin = value.offset * c10::elementSize(value.type), end = value.end();
  const Reach& reach = reach_.at(value.memory);
  if (end > 0 && (begin < reach.begin || end > reach.end)) {
    refuse(c10::str(name, " reaches beyond the elements of an input; give the whole tensor as the input."));
  }
  if (!reach.same_offset && name.starts_with("aten::as_strided")) {
    refuse(c10::str(name,
                    " counts from the begin of an input's memory, where the input does not begin; give "
                    "the input's clone()."));
  }
}

void Recorder::note_writes(Operator& op) {
  const auto add = [&](const Argument& argument) {
    for (const int value : argument.values) {
      if (value < 0) continue;
      const int index = program_.values[value].memory;
      program_.memories[index].written = true;
      if (std::find(op.writes.begin(), op.writes.end(), index) == op.writes.end()) op.writes.push_back(index);
    }
  };
  const auto& arguments = op.handle.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!writes_argument(arguments[i])) continue;
    add(op.in[i]);
    if (op.handle.hasTag(at::Tag::inplace_view) && op.in[i].is_tensor() && op.in[i].values[0] >= 0 &&
        program_.memory_of(op.in[i].values[0]).origin != Origin::kMade) {
      refuse(
          c10::str(op.name, " changes the sizes of a tensor that was there before the call; do so outside."));
    }
  }
  for (const int hidden : hidden_writes(op.name)) add(op.in[hidden]);
}

// Memory of an empty tensor that an operator reads, although no operator has written to it: the program has,
// through a pointer. Its bytes become part of the recording.
void Recorder::note_host_values(const Operator& op) {
  const int now = static_cast<int>(program_.operators.size());
  for (size_t i = 0; i < op.in.size(); ++i) {
    if (writes_argument(op.handle.schema().arguments()[i]) && overwrites(op, i)) continue;
    for (const int value : op.in[i].values) {
      if (value < 0) continue;
      Memory& memory = program_.memories[program_.values[value].memory];
      if (memory.origin != Origin::kMade || memory.has_values || memory.bytes == 0) continue;
      memory.host_filled = now;
      memory.has_values = true;
      memory.constant.assign(static_cast<const char*>(memory.address), memory.bytes);
    }
  }
}

// A storage that grew or moved is not the memory that was noted.
void Recorder::check_memory(const Operator& op) {
  const auto check = [&](const Argument& argument) {
    for (const int value : argument.values) {
      if (value < 0) continue;
      const Memory& memory = program_.memory_of(value);
      if (memory.raw->nbytes() != memory.bytes || memory.raw->data() != memory.address) {
        refuse(c10::str(op.name, " gave a tensor other memory; copy values into the tensor instead (copy_)."));
      }
    }
  };
  for (const Argument& in : op.in) check(in);
  for (const Argument& out : op.out) check(out);
}

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
  }
  return result;
}

int Recorder::value(const at::Tensor& tensor, const std::string& name, bool result, bool* fresh) {
  if (std::string reason = refusal_of(tensor, name); !reason.empty()) {
    refuse(std::move(reason));
    return -1;
  }
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const int index = memory(tensor, result, fresh);
  Memory& memory = program_.memories[index];
  const int now = static_cast<int>(program_.operators.size());
  if (memory.first < 0) memory.first = now;
  memory.last = now;
  std::string key;
  append(key, index);
  append(key, tensor.storage_offset());
  append(key, tensor.scalar_type());
  append(key, impl->is_wrapped_number());
  append(key, tensor.requires_grad());
  for (const int64_t size : tensor.sizes()) append(key, size);
  for (const int64_t stride : tensor.strides()) append(key, stride);
  const auto [known, added] = values_.emplace(std::move(key), static_cast<int>(program_.values.size()));
  if (added) {
    program_.values.push_back({.memory = index,
                               .offset = tensor.storage_offset(),
                               .sizes = c10::DimVector(tensor.sizes()),
                               .strides = c10::DimVector(tensor.strides()),
                               .type = tensor.scalar_type(),
                               .wrapped = impl->is_wrapped_number(),
                               .requires_grad = tensor.requires_grad()});
  }
  if (!result && memory.origin == Origin::kOutside) note_outside(tensor, known->second);
  if (memory.origin == Origin::kInput) check_reach(program_.values[known->second], name);
  if (memory.origin == Origin::kInput) {
    if (!result) {
      program_.input_aliased |= !of_inputs_.contains(impl);
    } else if (of_inputs_.insert(impl).second) {
      kept_addresses_.emplace_back(tensor.getIntrusivePtr());
    }
  }
  return known->second;
}

int Recorder::memory(const at::Tensor& tensor, bool result, bool* fresh) {
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
  }
  program_.memories.push_back(std::move(memory));
  return known->second;
}

void Recorder::note_outside(const at::Tensor& tensor, int value) {
  auto* impl = tensor.unsafeGetTensorImpl();
  if (!outside_seen_.insert(impl).second) return;
  program_.outside.push_back({.weak = WeakTensor(tensor.getIntrusivePtr()),
                              .raw = impl,
                              .value = value,
                              .version_before = impl->is_inference() ? 0 : tensor._version()});
}

void Recorder::finish(const std::vector<at::Tensor>& results) {
  if (foreign_operators.load(std::memory_order_relaxed) != foreign_before_) {
    refuse("Operators ran on another thread during the recording; only steps on one thread can be replayed.");
  }
  if (!program_.refusal.empty()) return;
  if (program_.operators.empty()) return refuse("The function called no operator; there is nothing to replay.");
  for (const at::Tensor& result : results) {
    if (!result.defined()) {
      program_.results.push_back(-1);
      continue;
    }
    bool fresh = false;
    const int index = value(result, "The function's result", false, &fresh);
    if (index < 0) return;
    if (fresh || program_.memory_of(index).origin != Origin::kMade) {
      return refuse("The function returns a tensor that was there before the call; return its clone().");
    }
    program_.results.push_back(index);
  }
  for (OutsideTensor& outside : program_.outside) {
    const auto alive = outside.weak.lock();
    outside.lives = static_cast<bool>(alive);
    if (alive && !alive->is_inference()) outside.version_after = alive->version_counter().current_version();
  }
  for (Memory& memory : program_.memories) {
    memory.lives = !memory.weak.expired();
    if (memory.origin != Origin::kOutside || memory.lives) continue;
    if (memory.constant.empty() || memory.written) {
      const std::string& name = program_.operators[std::max(memory.first, 0)].name;
      return refuse(c10::str(name,
                             " uses memory that was there before the call and died in it, as from_blob() or "
                             "a tensor that was replaced; keep the tensor and copy new values into it."));
    }
    memory.origin = Origin::kConstant;
  }
}

}  // namespace overdrive::replay
