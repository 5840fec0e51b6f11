// The content of a step file as plain tables: functions, each with a program for every set of inputs, and the
// tensors that they share. Made by write_program.h or out of bytes; a value, owned by whoever made it. Reading
// looks at the form alone: check_program.h says whether a program may run.
#pragma once

#include "replay/file/save_options.h"
#include "replay/record/program.h"

#include <ATen/core/Generator.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace overdrive::replay {

// The version that this library writes. It reads this one and those before.
constexpr uint32_t kFileVersion = 2;

// A tensor in shared memory, under a name. Strides and the offset count elements.
struct StoredView {
  std::string name = {};
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> sizes = {};
  std::vector<int64_t> strides = {};
  int64_t offset = 0;
  // A leaf that required a gradient.
  bool is_parameter = false;
};

// Memory that was there before the step and stays after it, with the tensors in it.
struct StoredTensor {
  uint64_t bytes = 0;
  // It had the same bytes in all recorded calls, and the function may have read them through a pointer.
  bool is_fixed = false;
  std::vector<StoredView> views = {};
  // Its bytes; nothing where the file was written without values.
  std::optional<std::string_view> value = {};
};

struct StoredInput {
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> sizes = {};
  std::vector<int64_t> strides = {};
  // Of its address, modulo 16.
  uint8_t alignment = 0;
  // The first input that is the same tensor.
  uint32_t same_as = 0;
};

struct StoredMemory {
  Origin origin = Origin::kMade;
  // Of an input or a tensor: which one.
  uint32_t index = 0;
  // Of a constant, and of memory that the program filled by hand.
  std::string constant = {};
  // The operator before which the program filled it; -1: none.
  int32_t host_filled = -1;
  // What a step makes and leaves, as a gradient: its name, and the value by which it is known.
  std::string left_as = {};
  int32_t left_value = -1;
};

struct StoredOperator {
  uint32_t schema = 0;
  std::vector<Argument> in = {};
  std::vector<Argument> out = {};
  bool grad_mode = false;
};

// Where a number of an optimizer of LibTorch stands in a program.
struct StoredUse {
  int32_t op = 0;
  int32_t argument = 0;
  uint32_t in_update = 0;
};
struct StoredUpdate {
  uint32_t optimizer = 0;
  uint32_t parameter = 0;
  std::vector<StoredUse> uses = {};
};

// One call: what came in, and digests of what came out of it. The tensors and generators of the file are those
// before the call.
struct StoredCall {
  // Of the tables that the call was made with: digest_of_tables(). Since version 2.
  uint64_t tables = 0;
  std::vector<std::string_view> inputs = {};
  // After each operator: of what it made and changed.
  std::vector<uint64_t> operators = {};
  // Of the results and of everything that lives on.
  uint64_t outcome = 0;
  // How long the writer's replay takes.
  double seconds = 0;
  // The elements of each result; empty where they are many.
  std::vector<std::string_view> results = {};
};

struct StoredProgram {
  std::vector<StoredInput> inputs = {};
  std::vector<StoredMemory> memories = {};
  std::vector<Value> values = {};
  std::vector<StoredOperator> operators = {};
  // Values; -1 for an undefined tensor.
  std::vector<int32_t> results = {};
  // Numbers of optimizers of LibTorch. Those of Python are tensors.
  std::vector<StoredUpdate> updates = {};
  // What the function took eagerly where it was captured. Since version 2.
  EagerCost eager = {};
  std::optional<StoredCall> call = {};
};

struct StoredFunction {
  std::string name = {};
  std::vector<StoredProgram> programs = {};
};

// An optimizer of LibTorch: its class, options of groups as numbers, and the step count of each parameter.
struct StoredOptimizer {
  uint8_t kind = 0;
  std::vector<std::vector<double>> groups = {};
  struct Parameter {
    uint32_t group = 0;
    int64_t steps = 0;
  };
  std::vector<Parameter> parameters = {};
};

struct StoredStep {
  // Of the file that it was read from.
  uint32_t version = kFileVersion;
  // Versions of Overdrive and LibTorch, the instruction set, settings that decide bits, the number of threads.
  std::string overdrive = {};
  std::string torch = {};
  std::string capability = {};
  std::string settings = {};
  int32_t threads = 1;
  at::ScalarType default_type = at::kFloat;
  // Of each operator that is named: name, arguments and results as LibTorch prints them.
  std::vector<std::string> schemas = {};
  // The first one is the process's own.
  std::vector<std::string> generator_states = {};
  std::vector<at::Generator> generators = {};
  std::vector<StoredTensor> tensors = {};
  std::vector<StoredOptimizer> optimizers = {};
  std::vector<StoredFunction> functions = {};
  // Of a step that was read: the bytes that the tables refer to.
  std::shared_ptr<std::string> bytes = {};
};

// How an archive of torch.save() and of save_state() begins.
constexpr std::string_view kArchiveMagic = "PK";

std::string to_bytes(const StoredStep& step);
// Of everything but the calls and the values of tensors.
uint64_t digest_of_tables(const StoredStep& step);
// Throws where the bytes are no step file. Makes the generators.
StoredStep from_bytes(std::shared_ptr<std::string> bytes);

// "aten::add.Tensor" of a schema's text.
std::string name_of_schema(const std::string& schema);

}  // namespace overdrive::replay
