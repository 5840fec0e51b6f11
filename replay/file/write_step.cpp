#include "replay/file/write_step.h"

#include "replay/file/check_program.h"
#include "replay/file/proving_call.h"
#include "replay/file/settings.h"
#include "replay/file/write_program.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/version.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>

namespace overdrive::replay {

namespace {

// Bytes that a stored call refers to.
struct KeptCall {
  std::vector<std::string> inputs;
  std::vector<std::string> results;
};

// The shortest of a few replays.
double seconds_of(ReplayRun& run) {
  double least = 1e9;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    if (!run.run()) return 0;
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return least;
}

// Makes one call on what lies in the buffers, and puts everything back.
StoredCall prove(const ProgramToSave& given, const StoredProgram& stored, const ProgramIndices& indices,
                 const StoredStep& step, KeptCall& kept) {
  StoredCall call;
  const auto& buffers = given.run.bound().buffers();
  for (size_t i = 0; i < buffers.size(); ++i)
    kept.inputs.emplace_back(stored.inputs[i].same_as < i ? std::string_view() : bytes_of_input(buffers[i]));
  const Snapshot before = state_of(given.run, stored, indices, step.generators);
  try {
    if (given.numbers) given.numbers->set_for_next_step();
    call.operators = digests_of_operators(given.run, stored, indices);
    call.outcome = outcome_of(given.run, stored, indices, step.generators);
    kept.results = small_results(given.run, stored, indices);
    before.restore();
    call.seconds = seconds_of(given.run);
  } catch (...) {
    before.restore();
    throw;
  }
  before.restore();
  for (const std::string& bytes : kept.inputs) call.inputs.emplace_back(bytes);
  for (const std::string& bytes : kept.results) call.results.emplace_back(bytes);
  return call;
}

// A state is what has a name. Where the names of a memory leave out elements that a program uses, all of it
// gets one.
void name_all_elements(StoredStep& step) {
  for (int index = tensor_without_name(step); index >= 0; index = tensor_without_name(step)) {
    StoredTensor& tensor = step.tensors[index];
    tensor.views.push_back({.name = c10::str("memory.", index),
                            .type = at::kByte,
                            .sizes = {static_cast<int64_t>(tensor.bytes)},
                            .strides = {1}});
  }
}

// When the tables are complete: which ones the calls prove.
void note_tables(StoredStep& step) {
  const uint64_t digest = digest_of_tables(step);
  for (StoredFunction& function : step.functions) {
    for (StoredProgram& program : function.programs) {
      if (program.call) program.call->tables = digest;
    }
  }
}

// What the reader would refuse is refused here.
void check(const StoredStep& step) {
  check_tables(step, UINT64_MAX);
  const auto operators = operators_of(step);
  for (const StoredFunction& function : step.functions) {
    for (const StoredProgram& program : function.programs)
      (void)checked_program(step, program, operators, uint64_t{1} << 60);
  }
}

void write_file(const std::string& path, const std::string& bytes) {
  const std::string draft = c10::str(path, ".", ::getpid(), ".tmp");
  errno = 0;
  std::ofstream file(draft, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  const bool done = file && std::rename(draft.c_str(), path.c_str()) == 0;
  const int reason = errno;
  if (!done) std::remove(draft.c_str());
  TORCH_CHECK(done, path, " cannot be written", reason ? c10::str(": ", std::strerror(reason)) : "", ".");
}

StoredStep header() {
  StoredStep step;
  step.overdrive = OVERDRIVE_VERSION;
  step.torch = TORCH_VERSION;
  step.capability = at::get_cpu_capability();
  step.settings = settings_now();
  step.threads = at::get_num_threads();
  step.default_type = at::get_default_dtype_as_scalartype();
  return step;
}

}  // namespace

void write_step(const std::string& path, const std::vector<FunctionToSave>& functions,
                const SaveOptions& options) {
  StoredStep step = header();
  ProgramWriter writer(step, options);
  std::vector<std::vector<ProgramIndices>> indices;
  for (const FunctionToSave& function : functions) {
    step.functions.push_back({.name = function.name});
    indices.emplace_back();
    for (const ProgramToSave& program : function.programs) {
      if (const Difference found = program.run.guard().difference())
        TORCH_CHECK(false, "The step cannot be saved: ", found.text, "; call it once more.");
      auto [stored, indices_of_program] = writer.write(program);
      step.functions.back().programs.push_back(std::move(stored));
      indices.back().push_back(std::move(indices_of_program));
    }
  }
  for (const at::Generator& generator : step.generators) step.generator_states.push_back(state_text(generator));
  std::vector<std::unique_ptr<KeptCall>> kept;
  for (size_t f = 0; f < functions.size() && options.values; ++f) {
    for (size_t p = 0; p < functions[f].programs.size(); ++p) {
      kept.push_back(std::make_unique<KeptCall>());
      StoredProgram& stored = step.functions[f].programs[p];
      stored.call = prove(functions[f].programs[p], stored, indices[f][p], step, *kept.back());
    }
  }
  for (StoredTensor& tensor : step.tensors) {
    if (!options.values && !tensor.is_fixed) tensor.value.reset();
  }
  name_all_elements(step);
  note_tables(step);
  check(step);
  write_file(path, to_bytes(step));
}

}  // namespace overdrive::replay
