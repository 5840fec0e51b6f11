#include "replay/run/self_check.h"

namespace overdrive::replay {

namespace {

std::string name_of(const Program& program, int memory) {
  return program.operators[std::max(program.memories[memory].first, 0)].name;
}

// Memories that live on: those from outside and those that the step leaves behind.
std::vector<int> lasting(const Program& program) {
  std::vector<int> result;
  for (size_t i = 0; i < program.memories.size(); ++i) {
    const Memory& memory = program.memories[i];
    if (memory.origin == Origin::kInput || (memory.lives && memory.origin != Origin::kConstant)) {
      result.push_back(static_cast<int>(i));
    }
  }
  return result;
}

// Memory that was there before the call, alive, as the earlier recording knows it.
Snapshot snapshot_before(const Program& program, const std::vector<at::Tensor>& buffers) {
  Snapshot result;
  for (const Memory& memory : program.memories) {
    if (memory.origin == Origin::kInput) {
      result.add(buffers[memory.input].storage().unsafeGetStorageImpl());
    } else if (memory.origin == Origin::kOutside) {
      if (const auto alive = memory.weak.lock()) result.add(alive.get());
    }
  }
  for (const at::Generator& generator : generators_of(program)) result.add(generator);
  return result;
}

Snapshot lasting_state(const ReplayRun& run) {
  Snapshot result;
  for (const int memory : lasting(run.program())) {
    auto* storage = run.bound().storage(memory).unsafeGetStorageImpl();
    const bool made = run.program().memories[memory].origin == Origin::kMade;
    result.add(storage, made ? run.program().used_bytes(memory) : storage->nbytes());
  }
  for (const at::Generator& generator : generators_of(run.program())) result.add(generator);
  return result;
}

}  // namespace

ReplayedState::ReplayedState(const ReplayRun& run) : state_(lasting_state(run)) {}

std::string ReplayedState::difference_from(const ReplayRun& eager) const {
  const Snapshot other = lasting_state(eager);
  const int index = state_.first_difference(other);
  if (index < 0) return "";
  const std::vector<int> memories = lasting(eager.program());
  if (index >= static_cast<int>(memories.size())) return "It drew other random numbers.";
  return c10::str("It left other values in memory that ", name_of(eager.program(), memories[index]), " uses.");
}

CheckedCall check_call(const Program& before, const CheckParts& parts) {
  CheckedCall call;
  const Snapshot start = snapshot_before(before, parts.buffers);
  std::vector<LeafGradient> gradients = gradients_now(before);
  Program program;
  {
    Recorder recorder(program);
    call.results = recorder.run(parts.function, parts.buffers);
  }
  if (program.refusal.empty()) program.refusal = note_gradients_after(gradients, program);
  program.gradients = std::move(gradients);
  call.refusal = program.refusal;
  if (!call.refusal.empty()) return call;
  call.difference = parts.compare(program);
  call.refusal = program.refusal;
  if (!call.difference.empty() || !call.refusal.empty()) return call;

  call.run = std::make_unique<ReplayRun>(std::move(program), parts.buffers);
  call.refusal = call.run->refusal();
  if (!call.refusal.empty()) return call;
  const Program& recorded = call.run->program();
  const std::vector<int> memories = lasting(recorded);
  const Snapshot eager = lasting_state(*call.run);
  parts.prepare(*call.run);
  try {
    start.restore();
    call.run->run_checked();
    const int index = eager.first_difference(eager.now());
    if (index >= static_cast<int>(memories.size())) {
      call.refusal = "A replay draws other random numbers than the call.";
    } else if (index >= 0) {
      call.refusal = c10::str(
          "A replay leaves other values than the call in memory that ", name_of(recorded, memories[index]),
          " uses; the function writes through a pointer, or an operator hides what it does.");
    }
  } catch (const std::exception& error) {
    call.refusal = c10::str("A replay failed: ", error.what());
  }
  eager.restore();
  return call;
}

}  // namespace overdrive::replay
