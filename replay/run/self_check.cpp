#include "replay/run/self_check.h"

#include "engine/base/c_error.h"
#include "replay/guard/input_signature.h"
#include "replay/guard/leaf_gradients.h"
#include "replay/record/apart_call.h"

#include <array>
#include <cstring>
#include <unordered_set>

namespace overdrive::replay {

namespace {

// Of one memory; a data set in a mapped file may be larger than the machine.
constexpr size_t kDigestBytes = size_t{64} << 20;

// Memories that a call changes: those from outside and the inputs' where an operator writes there, and those
// that the step leaves behind.
std::vector<int> changed(const Program& program) {
  std::vector<int> result;
  for (size_t i = 0; i < program.memories.size(); ++i) {
    const Memory& memory = program.memories[i];
    const bool lives =
        memory.origin == Origin::kInput || memory.lives || program.is_result(static_cast<int>(i));
    if (lives && (memory.written || memory.origin == Origin::kMade) && memory.origin != Origin::kConstant) {
      result.push_back(static_cast<int>(i));
    }
  }
  return result;
}

// What a call changes of memory that was there before it, as the earlier recording knows it.
Snapshot snapshot_before(const Program& program, const std::vector<at::Tensor>& buffers) {
  Snapshot result;
  for (const Memory& memory : program.memories) {
    if (!memory.written) continue;
    if (memory.origin == Origin::kInput) {
      result.add(buffers[memory.input].storage().unsafeGetStorageImpl());
    } else if (memory.origin == Origin::kOutside) {
      if (const auto alive = memory.weak.lock()) result.add(alive.get());
    }
  }
  for (const at::Generator& generator : generators_of(program)) result.add(generator);
  return result;
}

Snapshot changed_state(const ReplayRun& run) {
  Snapshot result;
  for (const int memory : changed(run.program())) {
    auto* storage = run.bound().storage(memory).unsafeGetStorageImpl();
    const bool made = run.program().memories[memory].origin == Origin::kMade;
    result.add(storage, made ? run.program().used_bytes(memory) : storage->nbytes());
  }
  for (const at::Generator& generator : generators_of(run.program())) result.add(generator);
  return result;
}

// What differs after a replay and an eager call: the first operator that writes there.
Refusal refusal_of(const Program& program, const std::vector<int>& differences) {
  const std::vector<int> memories = changed(program);
  std::unordered_set<int> other;
  for (const int index : differences) {
    if (index < static_cast<int>(memories.size())) other.insert(memories[index]);
  }
  if (other.empty()) return "A replay draws other random numbers than the call.";
  const auto differs = [&](int memory) { return other.contains(memory); };
  const auto lies_there = [&](int value) { return value >= 0 && differs(program.values[value].memory); };
  for (const Operator& op : program.operators) {
    if (op.vanishes) continue;
    const bool makes = std::any_of(op.out.begin(), op.out.end(), [&](const Argument& out) {
      return std::any_of(out.values.begin(), out.values.end(), lies_there);
    });
    if (!makes && std::none_of(op.writes.begin(), op.writes.end(), differs)) continue;
    return {c10::str("A replay leaves other values than the call in memory that ", op.name,
                     " writes; the function writes through a pointer, or an operator hides what it does."),
            op.name};
  }
  return "A replay leaves other values than the call.";
}

// Of eight bytes at a time, in four lanes that do not wait for each other.
uint64_t digest_of(const char* bytes, size_t size) {
  constexpr uint64_t kFactor = 0x9e3779b97f4a7c15;
  std::array<uint64_t, 4> lanes{1, 2, 3, size};
  size_t i = 0;
  for (; i + sizeof(lanes) <= size; i += sizeof(lanes)) {
    std::array<uint64_t, 4> words;
    std::memcpy(words.data(), bytes + i, sizeof(words));
    for (size_t k = 0; k < lanes.size(); ++k) lanes[k] = (lanes[k] ^ words[k]) * kFactor + (lanes[k] >> 29);
  }
  for (; i < size; ++i) lanes[0] = (lanes[0] ^ static_cast<uint8_t>(bytes[i])) * kFactor + (lanes[0] >> 29);
  return lanes[0] ^ (lanes[1] * 3) ^ (lanes[2] * 5) ^ (lanes[3] * 7);
}

// An input that is not written by an operator and has other elements after the call than before it.
bool wrote_to_an_input(const Program& program, const CheckParts& parts) {
  std::unordered_set<const c10::TensorImpl*> written;
  for (const Memory& memory : program.memories) {
    if (memory.origin == Origin::kInput && memory.written) {
      written.insert(parts.inputs[memory.input].unsafeGetTensorImpl());
    }
  }
  for (size_t i = 0; i < parts.inputs.size(); ++i) {
    if (written.contains(parts.inputs[i].unsafeGetTensorImpl())) continue;
    if (!same_elements(parts.buffers[i], parts.inputs[i])) return true;
  }
  return false;
}

// A replay from the state before the call, and another one in memory with other bytes in it: the first one
// shall leave nothing that the second one trips over.
Refusal replay_twice(ReplayRun& run, const Snapshot& start, const Snapshot& eager) {
  for (const bool again : {false, true}) {
    start.restore();
    ApartTape::rewind(/*may_call=*/false);
    if (ApartTape* tape = ApartTape::active()) tape->follow(run.program(), /*is_replay=*/true);
    again ? run.run_again() : run.run_checked();
    if (const auto differences = eager.differences(); !differences.empty())
      return refusal_of(run.program(), differences);
  }
  return "";
}

}  // namespace

ReplayedState::ReplayedState(const ReplayRun& run) : state_(changed_state(run)) {}

Refusal ReplayedState::difference_from(const ReplayRun& eager) const {
  const std::vector<int> differences = state_.differences(changed_state(eager));
  return differences.empty() ? Refusal() : refusal_of(eager.program(), differences);
}

ReadMemory::ReadMemory(const Program& program) {
  for (const Memory& memory : program.memories) {
    if (memory.origin != Origin::kOutside || memory.written) continue;
    const auto alive = memory.weak.lock();
    const size_t bytes = alive ? alive->nbytes() : 0;
    complete_ &= bytes <= kDigestBytes;
    digests_.push_back(
        bytes == 0 ? 0 : digest_of(static_cast<const char*>(alive->data()), std::min(bytes, kDigestBytes)));
  }
}

CheckedCall check_call(const Program& before, const ReadMemory& read_before, const CheckParts& parts) {
  CheckedCall call;
  const Snapshot start = snapshot_before(before, parts.buffers);
  const ReadMemory read(before);
  // A part leaves the gradients of leaves to its graph.
  std::vector<LeafGradient> gradients = before.is_part() ? std::vector<LeafGradient>() : gradients_now(before);
  call.program = std::make_unique<Program>();
  Program& program = *call.program;
  {
    ApartTape::rewind(/*may_call=*/true);
    Recorder recorder(program, gradients);
    recorder.note_weights(parts.casts);
    call.results = recorder.run(parts.function, parts.inputs);
  }
  if (program.refusal.empty() && !program.is_part())
    program.refusal = note_gradients_after(gradients, program, call.results);
  program.gradients = std::move(gradients);
  if (program.refusal.empty()) call.difference = parts.compare(program);
  call.refusal = program.refusal;
  call.is_unrecordable = !call.refusal.empty();
  if (!call.difference.empty() || !call.refusal.empty()) return call;
  // Memory that others fill changes between calls, too.
  if (wrote_to_an_input(program, parts) || (read == read_before && ReadMemory(before) != read)) {
    call.difference =
        "The function changes memory through a pointer, and no operator writes there; use operators (copy_).";
    call.is_unsure = true;
    return call;
  }

  Passes passes = parts.passes(program);
  call.run = std::make_unique<ReplayRun>(std::move(program), std::move(passes), parts.buffers);
  call.program.reset();
  call.refusal = call.run->refusal();
  if (!call.refusal.empty()) return call;
  for (const Memory& memory : call.run->program().memories) {
    if (memory.origin != Origin::kInput || !memory.written) continue;
    copy_elements(parts.buffers[memory.input], parts.inputs[memory.input]);
  }
  call.run->take_results(call.results);
  const Snapshot eager = changed_state(*call.run);
  parts.prepare(*call.run);
  try {
    Refusal found = replay_twice(*call.run, start, eager);
    call.is_unsure = !found.empty() && ReadMemory(before) != read;
    (call.is_unsure ? call.difference : call.refusal) = std::move(found);
  } catch (const std::exception& error) {
    call.refusal = c10::str("A replay failed: ", base::text_of(error));
  }
  eager.restore();
  ApartTape::rewind(/*may_call=*/true);
  return call;
}

}  // namespace overdrive::replay
