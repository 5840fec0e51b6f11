#include "replay/file/proving_call.h"

#include "replay/file/bytes.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <mutex>

namespace overdrive::replay {

namespace {

// Of a result that is kept, to tell how large a difference is.
constexpr size_t kMostResultBytes = size_t{64} << 10;

std::string_view bytes_of(const at::Tensor& contiguous) {
  return {static_cast<const char*>(contiguous.const_data_ptr()), contiguous.nbytes()};
}

uint64_t digest_of_elements(const at::Tensor& tensor, uint64_t digest) {
  const at::AutoDispatchBelowADInplaceOrView below;
  return digest_of(bytes_of(tensor.contiguous()), digest);
}

}  // namespace

bool draws(const ReplayRun& run) { return run.program().uses_random_numbers(); }

std::string_view bytes_of_input(const at::Tensor& buffer) {
  const size_t bytes = end_of(buffer.sizes(), buffer.strides(), 0, buffer.element_size());
  return {static_cast<const char*>(buffer.const_data_ptr()), bytes};
}

std::string state_text(const at::Generator& generator) {
  at::Generator copy = generator;
  const std::lock_guard<std::mutex> lock(copy.mutex());
  return std::string(bytes_of(copy.get_state()));
}

void set_states(const std::vector<at::Generator>& generators, const std::vector<std::string>& states) {
  for (size_t i = 0; i < generators.size(); ++i) {
    at::Generator generator = generators[i];
    at::Tensor state = at::empty({static_cast<int64_t>(states[i].size())}, at::kByte);
    if (!states[i].empty()) std::memcpy(state.mutable_data_ptr(), states[i].data(), states[i].size());
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(state);
  }
}

Snapshot state_of(const ReplayRun& run, const StoredProgram& stored, const ProgramIndices& indices,
                  const std::vector<at::Generator>& generators) {
  Snapshot result;
  for (size_t i = 0; i < stored.memories.size(); ++i) {
    const Memory& memory = run.program().memories[indices.memories[i]];
    const bool made = memory.origin == Origin::kMade && memory.lives;
    const bool written =
        (memory.origin == Origin::kInput || memory.origin == Origin::kOutside) && memory.written;
    if (made || written) result.add(run.bound().storage(indices.memories[i]).unsafeGetStorageImpl());
  }
  if (!draws(run)) return result;
  for (const at::Generator& generator : generators) result.add(generator);
  return result;
}

uint64_t outcome_of(const ReplayRun& run, const StoredProgram& stored, const ProgramIndices& indices,
                    const std::vector<at::Generator>& generators) {
  uint64_t digest = 0;
  for (const int32_t result : stored.results) {
    if (result >= 0) digest = digest_of_elements(run.bound().tensor(indices.values[result]), digest);
  }
  for (size_t i = 0; i < stored.memories.size(); ++i) {
    const StoredMemory& memory = stored.memories[i];
    if (memory.left_value >= 0) {
      digest = digest_of_elements(run.bound().tensor(indices.values[memory.left_value]), digest);
    } else if (memory.origin == Origin::kOutside && run.program().memories[indices.memories[i]].written) {
      const c10::Storage& storage = run.bound().storage(indices.memories[i]);
      digest = digest_of({static_cast<const char*>(storage.data()), storage.nbytes()}, digest);
    }
  }
  if (!draws(run)) return digest;
  for (const at::Generator& generator : generators) digest = digest_of(state_text(generator), digest);
  return digest;
}

std::vector<uint64_t> digests_of_operators(const ReplayRun& run, const StoredProgram& stored,
                                           const ProgramIndices& indices) {
  const auto& operators = run.program().operators;
  std::vector<uint64_t> digests(stored.operators.size());
  std::vector<int> numbers(operators.size(), -1);
  for (size_t i = 0; i < indices.operators.size(); ++i) numbers[indices.operators[i]] = static_cast<int>(i);
  const at::AutoDispatchBelowADInplaceOrView below;
  const at::AutoGradMode mode(at::GradMode::is_enabled());
  for (const ReplayStep& step : run.steps()) {
    at::GradMode::set_enabled(operators[step.op].grad_mode);
    step.step();
    if (step.fills) continue;
    const Operator& op = operators[step.op];
    uint64_t& digest = digests.at(numbers.at(step.op));
    const auto add = [&](const Argument& argument) {
      for (const int value : argument.values) {
        if (value >= 0) digest = digest_of_elements(run.bound().tensor(value), digest);
      }
    };
    for (const Argument& out : op.out) add(out);
    for (const Argument& in : op.in) {
      const auto lies_there = [&](int memory) { return run.program().touches(in, memory); };
      if (std::any_of(op.writes.begin(), op.writes.end(), lies_there)) add(in);
    }
  }
  return digests;
}

std::vector<std::string> small_results(const ReplayRun& run, const StoredProgram& stored,
                                       const ProgramIndices& indices) {
  const at::AutoDispatchBelowADInplaceOrView below;
  std::vector<std::string> results;
  for (const int32_t result : stored.results) {
    const at::Tensor tensor =
        result < 0 ? at::Tensor() : run.bound().tensor(indices.values[result]).contiguous();
    const bool kept = tensor.defined() && tensor.nbytes() <= kMostResultBytes;
    results.emplace_back(kept ? bytes_of(tensor) : std::string_view());
  }
  return results;
}

}  // namespace overdrive::replay
