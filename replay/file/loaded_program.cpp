#include "replay/file/loaded_program.h"

#include "replay/file/bytes.h"
#include "replay/guard/input_signature.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/CPUAllocator.h>

#include <cmath>
#include <numeric>

namespace overdrive::replay {

namespace {

c10::Storage zeros(size_t bytes) {
  at::DataPtr data = c10::GetCPUAllocator()->allocate(bytes);
  if (bytes > 0) std::memset(data.get(), 0, bytes);
  return c10::Storage(c10::Storage::use_byte_size_t(), bytes, std::move(data), nullptr, false);
}

at::Tensor tensor_in(const c10::Storage& storage, at::ScalarType type, c10::IntArrayRef sizes,
                     c10::IntArrayRef strides, int64_t offset) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(type));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

constexpr const char* kOtherAnswer =
    " tells the program something else than it did when the step was recorded, and the file has no other way.";

bool is_plain(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && tensor.device().is_cpu() &&
         tensor.has_storage() && !tensor.unsafeGetTensorImpl()->is_python_dispatch() && !tensor.is_conj() &&
         !tensor.is_neg();
}

}  // namespace

LoadedTensors::LoadedTensors(const StoredStep& step) {
  for (const StoredTensor& tensor : step.tensors) {
    storages.push_back(zeros(tensor.bytes));
    if (tensor.value && tensor.bytes > 0)
      std::memcpy(storages.back().mutable_data(), tensor.value->data(), tensor.bytes);
    views.emplace_back();
    for (const StoredView& view : tensor.views)
      views.back().push_back(tensor_in(storages.back(), view.type, view.sizes, view.strides, view.offset));
  }
}

LoadedProgram::LoadedProgram(StoredStep& step, const StoredProgram& stored, Program program,
                             LoadedTensors& tensors)
    : step_(step), stored_(stored), updates_(step.optimizers, stored.updates) {
  const auto all = [](std::vector<int>& list, size_t size) {
    list.resize(size);
    std::iota(list.begin(), list.end(), 0);
  };
  all(indices_.values, stored.values.size());
  all(indices_.memories, stored.memories.size());
  all(indices_.operators, stored.operators.size());
  make_buffers();
  give_memory(program, tensors);
  shared_ = SharedMemory(program);
  // The passes see a checked program, and the first call, which tries every operator, has them on.
  Passes passes = passes_of(program, [this](size_t op) { return updates_.is_update(op); });
  run_ = std::make_unique<ReplayRun>(std::move(program), std::move(passes), buffers_);
  TORCH_CHECK(run_->refusal().empty(), run_->refusal());
  for (size_t i = 0; i < stored.memories.size(); ++i) {
    if (stored.memories[i].left_value < 0) continue;
    const Value& value = stored.values[stored.memories[i].left_value];
    left_.emplace_back(stored.memories[i].left_as,
                       tensor_in(run_->bound().storage(static_cast<int>(i)), value.type, value.sizes,
                                 value.strides, value.offset));
  }
}

void LoadedProgram::make_buffers() {
  for (size_t i = 0; i < stored_.inputs.size(); ++i) {
    const StoredInput& input = stored_.inputs[i];
    if (input.same_as < i) {
      buffers_.push_back(buffers_[input.same_as]);
      continue;
    }
    const size_t element = c10::elementSize(input.type);
    const size_t bytes = end_of(input.sizes, input.strides, 0, element);
    buffers_.push_back(tensor_in(zeros(input.alignment + bytes), input.type, input.sizes, input.strides,
                                 static_cast<int64_t>(input.alignment / element)));
  }
}

// A program holds weak references: to the file's tensors, and to what it leaves.
void LoadedProgram::give_memory(Program& program, LoadedTensors& tensors) {
  for (size_t i = 0; i < program.memories.size(); ++i) {
    Memory& memory = program.memories[i];
    const bool is_left = memory.origin == Origin::kMade && memory.lives;
    if (memory.origin != Origin::kOutside && !is_left) continue;
    if (is_left) {
      c10::Storage& known = tensors.left[stored_.memories[i].left_as];
      if (!known || known.nbytes() != memory.bytes) known = zeros(memory.bytes);
    }
    const c10::Storage storage =
        is_left ? tensors.left[stored_.memories[i].left_as] : tensors.storages[stored_.memories[i].index];
    memory.weak = storage.getWeakStorageImpl();
    memory.raw = storage.unsafeGetStorageImpl();
    memory.address = storage.data();
    outside_.push_back(is_left ? tensor_in(storage, at::kByte, {0}, {1}, 0)
                               : tensors.views[stored_.memories[i].index].front());
    if (is_left) continue;
    int value = -1;
    for (size_t k = 0; k < program.values.size() && value < 0; ++k) {
      if (program.values[k].memory == static_cast<int>(i)) value = static_cast<int>(k);
    }
    TORCH_CHECK(value >= 0, "the program names a tensor that it does not use.");
    program.outside.push_back({.weak = WeakTensor(outside_.back().getIntrusivePtr()),
                               .raw = outside_.back().unsafeGetTensorImpl(),
                               .value = value,
                               .version_before = 0,
                               .version_after = memory.written ? 1 : 0,
                               .lives = true});
  }
}

bool LoadedProgram::fits(const std::vector<at::Tensor>& inputs, bool exactly) const {
  if (inputs.size() != stored_.inputs.size()) return false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const StoredInput& input = stored_.inputs[i];
    if (!is_plain(inputs[i]) || inputs[i].scalar_type() != input.type || inputs[i].sizes() != input.sizes)
      return false;
    size_t first = 0;
    while (!inputs[first].is_same(inputs[i])) ++first;
    if (first != input.same_as) return false;
    if (!exactly) continue;
    const auto address = reinterpret_cast<uintptr_t>(inputs[i].const_data_ptr());
    const bool aligned = !inputs[i].is_floating_point() || address % 16 == input.alignment;
    if (!aligned || inputs[i].strides() != input.strides) return false;
  }
  return true;
}

void LoadedProgram::fill_buffers(const std::vector<at::Tensor>& inputs) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (stored_.inputs[i].same_as < i) continue;
    if (inputs[i].strides() == buffers_[i].strides()) {
      copy_elements(buffers_[i], inputs[i]);
    } else {
      const at::AutoDispatchBelowADInplaceOrView below;
      TORCH_CHECK(buffers_[i].is_non_overlapping_and_dense(), "input ", i,
                  " has other strides than the file's.");
      buffers_[i].copy_(inputs[i]);
    }
  }
}

void LoadedProgram::fill_buffers(const StoredCall& call) const {
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const std::string_view bytes = call.inputs[i];
    if (!bytes.empty()) std::memcpy(buffers_[i].mutable_data_ptr(), bytes.data(), bytes.size());
  }
}

std::vector<at::Tensor> LoadedProgram::recorded_inputs() const {
  std::vector<at::Tensor> inputs;
  for (size_t i = 0; i < stored_.inputs.size(); ++i) {
    const StoredInput& input = stored_.inputs[i];
    if (input.same_as < i) {
      inputs.push_back(inputs[input.same_as]);
      continue;
    }
    const size_t bytes = end_of(input.sizes, input.strides, 0, c10::elementSize(input.type));
    inputs.push_back(tensor_in(zeros(bytes), input.type, input.sizes, input.strides, 0));
    if (stored_.call && bytes > 0)
      std::memcpy(inputs.back().mutable_data_ptr(), stored_.call->inputs[i].data(), bytes);
  }
  return inputs;
}

void LoadedProgram::give_back(const std::vector<at::Tensor>& inputs) const {
  for (const Memory& memory : program().memories) {
    if (memory.origin != Origin::kInput || !memory.written) continue;
    const at::AutoDispatchBelowADInplaceOrView below;
    const at::Tensor& input = inputs[memory.input];
    input.copy_(buffers_[memory.input]);
    if (!input.is_inference()) input.unsafeGetTensorImpl()->bump_version();
  }
}

uint64_t LoadedProgram::try_operators() {
  const Snapshot start = state_of(*run_, stored_, indices_, step_.generators);
  uint64_t outcome = 0;
  try {
    updates_.declare(*run_);
    run_->run_checked();
    outcome = outcome_of(*run_, stored_, indices_, step_.generators);
    updates_.bind(*run_);
    start.restore();
    updates_.set_for_next_step();
    run_->run_again();
    TORCH_CHECK(outcome == outcome_of(*run_, stored_, indices_, step_.generators),
                "two replays of one call leave other bits.");
  } catch (const OtherAnswer& other) {
    start.restore();
    TORCH_CHECK(false, other.op.name, kOtherAnswer);
  } catch (const c10::Error&) {
    start.restore();
    throw;
  } catch (const std::exception& error) {
    start.restore();
    TORCH_CHECK(false, error.what());
  }
  start.restore();
  is_tried_ = true;
  return outcome;
}

std::string LoadedProgram::prove() {
  if (!stored_.call) return "";
  const Snapshot before = state_of(*run_, stored_, indices_, step_.generators);
  std::string text;
  try {
    fill_buffers(*stored_.call);
    if (draws(*run_)) set_states(step_.generators, step_.generator_states);
    const Snapshot start = state_of(*run_, stored_, indices_, step_.generators);
    if (try_operators() != stored_.call->outcome) text = first_difference(start);
  } catch (...) {
    before.restore();
    throw;
  }
  before.restore();
  return text;
}

std::string LoadedProgram::first_difference(const Snapshot& start) {
  start.restore();
  const std::vector<uint64_t> now = digests_of_operators(*run_, stored_, indices_);
  const std::string largest = largest_difference();
  for (size_t i = 0; i < now.size(); ++i) {
    // One of the two sides leaves it out.
    if (stored_.call->operators[i] == 0 || now[i] == 0 || now[i] == stored_.call->operators[i]) continue;
    return c10::str("operator ", i, " (", program().operators[i].name, ") of the call has other bits", largest);
  }
  return "what the call leaves has other bits, although every operator has the same" + largest;
}

std::string LoadedProgram::largest_difference() const {
  double largest = 0;
  bool known = false;
  const std::vector<std::string> now = small_results(*run_, stored_, indices_);
  for (size_t i = 0; i < now.size(); ++i) {
    const std::string_view then = stored_.call->results[i];
    if (stored_.results[i] < 0 || then.empty() || then.size() != now[i].size()) continue;
    const at::ScalarType type = stored_.values[stored_.results[i]].type;
    if (!c10::isFloatingType(type)) continue;
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto numbers = [&](std::string_view bytes) {
      at::Tensor tensor = at::empty({static_cast<int64_t>(bytes.size() / c10::elementSize(type))}, type);
      std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
      return tensor.to(at::kDouble);
    };
    largest = std::max(largest, (numbers(now[i]) - numbers(then)).abs().max().item<double>());
    known = true;
  }
  return known ? c10::str("; the largest difference of a result is ", largest) : "";
}

std::vector<at::Tensor> LoadedProgram::call(const std::vector<at::Tensor>& inputs) {
  if (const Difference found = run_->guard().difference())
    TORCH_CHECK(false, found.text, "; copy values into it (copy_).");
  TORCH_CHECK(shared_.harmless(inputs),
              "an input shares memory with a tensor that the step changes; give its clone().");
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  fill_buffers(inputs);
  if (!is_tried_) {
    (void)try_operators();
    fill_buffers(inputs);
  }
  updates_.set_for_next_step();
  RECORD_FUNCTION("overdrive::replay", c10::ArrayRef<c10::IValue>());
  // Before anything is changed, because there may be no memory for them.
  std::vector<at::Tensor> results = run_->empty_results();
  if (!run_->run()) {
    TORCH_CHECK(run_->other_answer().empty(), run_->other_answer(), kOtherAnswer);
    TORCH_CHECK(false, run_->failure());
  }
  run_->fill_results(results);
  give_back(inputs);
  run_->guard().finish_call();
  updates_.count_step();
  return results;
}

}  // namespace overdrive::replay
