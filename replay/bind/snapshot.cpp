#include "replay/bind/snapshot.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cstring>
#include <mutex>

namespace overdrive::replay {

namespace {

at::Tensor state_of(at::Generator generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

void copy_bytes(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

void Snapshot::add(c10::StorageImpl* storage, size_t bytes) {
  memories_.push_back({storage, std::string(static_cast<const char*>(storage->data()), bytes)});
}

void Snapshot::add(const at::Generator& generator) { generators_.push_back({generator, state_of(generator)}); }

Snapshot Snapshot::now() const {
  Snapshot result = *this;
  result.take();
  return result;
}

void Snapshot::take() {
  for (Bytes& memory : memories_) copy_bytes(memory.bytes.data(), memory.storage->data(), memory.bytes.size());
  for (State& generator : generators_) generator.state = state_of(generator.generator);
}

void Snapshot::restore() const {
  for (const Bytes& memory : memories_) {
    copy_bytes(memory.storage->mutable_data(), memory.bytes.data(), memory.bytes.size());
  }
  for (const State& generator : generators_) {
    at::Generator target = generator.generator;
    const std::lock_guard<std::mutex> lock(target.mutex());
    target.set_state(generator.state);
  }
}

std::vector<int> Snapshot::differences(const Snapshot& other) const {
  std::vector<int> result;
  for (size_t i = 0; i < memories_.size(); ++i) {
    if (memories_[i].bytes != other.memories_[i].bytes) result.push_back(static_cast<int>(i));
  }
  for (size_t i = 0; i < generators_.size(); ++i) {
    if (!same_bytes(generators_[i].state, other.generators_[i].state)) {
      result.push_back(static_cast<int>(memories_.size() + i));
    }
  }
  return result;
}

int Snapshot::first_difference(const Snapshot& other) const {
  const std::vector<int> all = differences(other);
  return all.empty() ? -1 : all.front();
}

// Without a copy of the memories.
std::vector<int> Snapshot::differences() const {
  std::vector<int> result;
  for (size_t i = 0; i < memories_.size(); ++i) {
    const std::string& bytes = memories_[i].bytes;
    if (!bytes.empty() && std::memcmp(bytes.data(), memories_[i].storage->data(), bytes.size()) != 0) {
      result.push_back(static_cast<int>(i));
    }
  }
  for (size_t i = 0; i < generators_.size(); ++i) {
    if (!same_bytes(generators_[i].state, state_of(generators_[i].generator))) {
      result.push_back(static_cast<int>(memories_.size() + i));
    }
  }
  return result;
}

// The one that all threads share only where the program draws: else it would be set back under other threads'
// hands.
std::vector<at::Generator> generators_of(const Program& program) {
  std::vector<at::Generator> result;
  if (program.uses_random_numbers()) result.push_back(at::detail::getDefaultCPUGenerator());
  for (const Operator& op : program.operators) {
    for (const Argument& argument : op.in) {
      if (argument.kind != Argument::Kind::kConstant || !argument.constant.isGenerator()) continue;
      const at::Generator generator = argument.constant.toGenerator();
      if (std::find(result.begin(), result.end(), generator) == result.end()) result.push_back(generator);
    }
  }
  return result;
}

}  // namespace overdrive::replay
