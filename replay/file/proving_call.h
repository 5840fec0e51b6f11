// The call by which a step file proves itself: what it leaves as digests, after each operator and at the end.
// The writer makes one of a captured step, and whoever loads the file makes the same call and compares.
// Functions of a run; on the calling thread.
#pragma once

#include "replay/bind/snapshot.h"
#include "replay/file/stored_step.h"
#include "replay/run/replay_run.h"

#include <functional>
#include <string>
#include <vector>

namespace overdrive::replay {

// Of each value, memory and operator of a stored program: its index in the program of a run.
struct ProgramIndices {
  std::vector<int> values;
  std::vector<int> memories;
  std::vector<int> operators;
};

// Whether the program draws random numbers. Else nobody touches generators, which other threads may use.
bool draws(const ReplayRun& run);
// Bytes of an input's buffer from the first element to the last.
std::string_view bytes_of_input(const at::Tensor& buffer);
// Memory and generators that a call changes: to be put back.
Snapshot state_of(const ReplayRun& run, const StoredProgram& stored, const ProgramIndices& indices,
                  const std::vector<at::Generator>& generators);
// Of the results and of everything that lives on.
uint64_t outcome_of(const ReplayRun& run, const StoredProgram& stored, const ProgramIndices& indices,
                    const std::vector<at::Generator>& generators);
// Makes the call step by step and notes the digest after each operator; 0 for one that the run leaves out.
// Numbers of the next step are set.
std::vector<uint64_t> digests_of_operators(const ReplayRun& run, const StoredProgram& stored,
                                           const ProgramIndices& indices);
// The elements of each result, where they are few.
std::vector<std::string> small_results(const ReplayRun& run, const StoredProgram& stored,
                                       const ProgramIndices& indices);

void set_states(const std::vector<at::Generator>& generators, const std::vector<std::string>& states);
std::string state_text(const at::Generator& generator);

}  // namespace overdrive::replay
