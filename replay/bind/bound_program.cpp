#include "replay/bind/bound_program.h"

#include "replay/passes/memory_needs.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstring>

namespace overdrive::replay {

namespace {

c10::Storage storage_at(void* address, size_t bytes) {
  return c10::Storage(c10::Storage::use_byte_size_t(), bytes, at::DataPtr(address, at::kCPU), nullptr, false);
}

// Memory of its own: a wrapped number.
c10::Storage storage_of(const std::string& bytes) {
  at::DataPtr data = c10::GetCPUAllocator()->allocate(bytes.size());
  std::memcpy(data.get(), bytes.data(), bytes.size());
  return c10::Storage(c10::Storage::use_byte_size_t(), bytes.size(), std::move(data), nullptr, false);
}

// The operator that makes the bytes has not run yet, or the recording has them.
c10::Storage constant_storage(const Memory& memory) {
  return storage_of(memory.host_filled >= 0 ? memory.constant : std::string(memory.bytes, '\0'));
}

}  // namespace

BoundProgram::BoundProgram(Program program, Passes passes, const std::vector<at::Tensor>& buffers)
    : program_(std::move(program)), passes_(std::move(passes)), buffers_(buffers) {
  storages_.resize(program_.memories.size());
  for (size_t i = 0; i < storages_.size(); ++i) {
    const Memory& memory = program_.memories[i];
    if (memory.origin == Origin::kInput) {
      storages_[i] = storage_at(buffers_[memory.input].mutable_data_ptr(), memory.bytes);
    } else if (memory.origin == Origin::kConstant) {
      storages_[i] = storage_of(memory.constant);
    } else if (memory.origin == Origin::kGone) {
      storages_[i] = storage_at(nullptr, memory.bytes);
    } else if (passes_.constant[i]) {
      storages_[i] = constant_storage(memory);
    } else if (memory.lives) {
      const auto alive = memory.weak.lock();
      if (!alive) {
        program_.refusal = "Memory that the step uses has died since it was recorded.";
        return;
      }
      const bool is_gradient = program_.is_new_gradient(memory);
      if (is_gradient) owners_.emplace_back(alive);
      storages_[i] = memory.origin == Origin::kOutside || is_gradient
                         ? storage_at(alive->mutable_data(), memory.bytes)
                         : c10::Storage(alive);
    } else {
      storages_[i] = storage_at(nullptr, memory.bytes);  // until it has a place, where an operator uses it
    }
  }
  if (!program_.refusal.empty()) return;
  place();
  for (const Value& value : program_.values) tensors_.push_back(make_tensor(value));
}

void BoundProgram::place() {
  const MemoryNeeds needs(program_, passes_);
  const MemoryPlan plan = needs.plan();
  host_of_.assign(storages_.size(), -1);
  arena_bytes_ = plan.bytes;
  arena_ = c10::GetCPUAllocator()->allocate(plan.bytes);
  for (size_t i = 0; i < needs.passing.size(); ++i) {
    const auto [room, offset] = plan.places[i];
    const int host = room < 0 ? -1 : needs.lasting[room];
    char* begin = static_cast<char*>(host < 0 ? arena_.get() : storages_[host].mutable_data());
    storages_[needs.passing[i]] = storage_at(begin + offset, needs.lifetimes[i].bytes);
    host_of_[needs.passing[i]] = host;
  }
  for (size_t i = 0; i < storages_.size(); ++i) {
    storages_[i] = storages_[passes_.lies_in[i]];
    host_of_[i] = host_of_[passes_.lies_in[i]];
  }
}

at::Tensor BoundProgram::make_tensor(const Value& value) const {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storages_[value.memory]),
                                                         c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                         c10::scalarTypeToTypeMeta(value.type));
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(value.sizes, value.strides, value.offset);
  if (value.wrapped) impl->set_wrapped_number(true);
  if (value.requires_grad) impl->set_requires_grad(true);
  return tensor;
}

bool BoundProgram::intact(int value) const {
  const Value& noted = program_.values[value];
  const at::Tensor& tensor = tensors_[value];
  const c10::Storage& storage = storages_[noted.memory];
  return tensor.storage().unsafeGetStorageImpl() == storage.unsafeGetStorageImpl() &&
         storage.nbytes() == program_.memories[noted.memory].bytes && tensor.sizes() == noted.sizes &&
         tensor.strides() == noted.strides && tensor.storage_offset() == noted.offset;
}

void BoundProgram::poison(uint8_t byte) {
  if (arena_bytes_ > 0) std::memset(arena_.get(), byte, arena_bytes_);
  for (size_t i = 0; i < storages_.size(); ++i) {
    const Memory& memory = program_.memories[i];
    if (memory.origin == Origin::kMade && memory.lives && memory.bytes > 0) {
      std::memset(storages_[i].mutable_data(), byte, memory.bytes);
    }
  }
}

void BoundProgram::fill_from_host(int memory) const {
  const std::string& bytes = program_.memories[memory].constant;
  std::memcpy(storages_[memory].mutable_data(), bytes.data(), bytes.size());
}

}  // namespace overdrive::replay
