// A loaded step as text.
#include "replay/file/loaded_step.h"

#include <c10/util/StringUtil.h>

#include <sstream>

namespace overdrive::replay {

namespace {

void print_program(const LoadedProgram& program, std::ostream& out) {
  const char* comma = "";
  out << "  (";
  for (const StoredInput& input : program.stored().inputs)
    out << std::exchange(comma, ", ") << at::toString(input.type) << at::IntArrayRef(input.sizes);
  out << ") -> (";
  comma = "";
  for (const int32_t result : program.stored().results) {
    out << std::exchange(comma, ", ");
    if (result < 0) {
      out << "none";
      continue;
    }
    const Value& value = program.stored().values[result];
    out << at::toString(value.type) << at::IntArrayRef(value.sizes);
  }
  const Passes& passes = program.run().bound().passes();
  const size_t left_out = program.stored().operators.size() - passes.count(Fate::kRuns);
  out << "): " << program.stored().operators.size() << " operators, " << left_out << " of them left out, ";
  if (program.is_tried()) out << program.run().direct_steps() << " direct, ";
  out << program.run().bound().arena_bytes() << " bytes of memory, "
      << (program.stored().call ? "proved by a call" : "without a call that proves it") << "\n";
}

}  // namespace

std::string text_of(const LoadedStep& step) {
  std::ostringstream out;
  const StoredStep& stored = step.stored;
  out << "written by Overdrive " << stored.overdrive << " with LibTorch " << stored.torch << ", "
      << stored.capability << ", " << stored.threads << " threads\n";
  for (size_t i = 0; i < step.programs.size(); ++i) {
    out << "function " << stored.functions[i].name << "\n";
    for (const auto& program : step.programs[i]) print_program(*program, out);
  }
  out << stored.schemas.size() << " different operators:";
  for (const std::string& schema : stored.schemas) out << ' ' << name_of_schema(schema);
  uint64_t bytes = 0;
  for (const StoredTensor& tensor : stored.tensors) bytes += tensor.bytes;
  out << "\n" << stored.tensors.size() << " tensors, " << bytes << " bytes\n";
  for (const StoredTensor& tensor : stored.tensors) {
    for (const StoredView& view : tensor.views)
      out << "  " << view.name << " " << at::toString(view.type) << at::IntArrayRef(view.sizes)
          << (view.is_parameter ? ", a parameter" : "") << (tensor.is_fixed ? ", never changes" : "")
          << (tensor.value ? "" : ", without values") << "\n";
  }
  return out.str();
}

}  // namespace overdrive::replay
