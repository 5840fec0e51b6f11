#include "replay/recording/listed_recordings.h"

#include "replay/file/bytes.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <string>

namespace overdrive::replay {

namespace {

template <typename Numbers>
void print_all(std::ostream& out, const Numbers& numbers) {
  for (const auto each : numbers) out << each << ',';
  out << ';';
}

// An object's address is another one in each process.
bool has_no_address(const c10::IValue& value) {
  if (value.isList()) {
    for (const c10::IValue& each : value.toListRef()) {
      if (!has_no_address(each)) return false;
    }
    return true;
  }
  return value.isNone() || value.isInt() || value.isDouble() || value.isBool() || value.isString() ||
         value.isDevice();
}

void print(std::ostream& out, const Argument& argument) {
  out << static_cast<int>(argument.kind) << ' ' << argument.number << ' ';
  print_all(out, argument.values);
  if (argument.kind != Argument::Kind::kConstant || argument.number >= 0) return;
  if (has_no_address(argument.constant)) {
    out << argument.constant;
  } else {
    out << argument.constant.tagKind();
  }
}

void print(std::ostream& out, const Operator& op, Fate fate) {
  out << op.name << ' ' << op.grad_mode << op.in_backward << op.vanishes << op.answers
      << static_cast<int>(fate);
  for (const auto* arguments : {&op.in, &op.out}) {
    for (const Argument& argument : *arguments) print(out, argument);
    out << '|';
  }
  print_all(out, op.fresh);
  print_all(out, op.writes);
  out << '\n';
}

std::string text_of_all(const Program& program, const Passes& passes) {
  std::ostringstream out;
  out.precision(17);
  for (const Memory& memory : program.memories)
    out << static_cast<int>(memory.origin) << ' ' << memory.bytes << ' ' << memory.written << memory.lives
        << memory.is_array << ' ' << memory.first << ' ' << memory.last << ' ' << memory.input << ' '
        << memory.number << '\n';
  for (const Value& value : program.values) {
    out << value.memory << ' ' << value.offset << ' ' << at::toString(value.type) << value.wrapped
        << value.requires_grad;
    print_all(out, value.sizes);
    print_all(out, value.strides);
  }
  for (size_t i = 0; i < program.operators.size(); ++i) print(out, program.operators[i], passes.fates[i]);
  print_all(out, passes.twin_of);
  print_all(out, passes.lies_in);
  print_all(out, program.results);
  print_all(out, program.backwards);
  out << program.inputs.size() << ' ' << program.outputs << ' ' << program.backward_begins << ' '
      << program.gradients.size() << ' ' << program.outside.size();
  return std::move(out).str();
}

// Digest, operators, operators of a replay, bytes of memory, and whether it is a part's.
std::string line_of(const ReplayRun& run) {
  const Program& program = run.program();
  const Passes& passes = run.bound().passes();
  char digest[17];
  snprintf(digest, sizeof digest, "%016llx",
           static_cast<unsigned long long>(digest_of(text_of_all(program, passes))));
  return c10::str(digest, " ", program.operators.size(), " operators, ", passes.count(Fate::kRuns), " run, ",
                  run.bound().arena_bytes(), " bytes", program.is_part() ? ", a part" : "", "\n");
}

}  // namespace

void list_recording(const ReplayRun& run) {
  const char* path = std::getenv("OVERDRIVE_RECORDINGS");
  if (!path || !*path) return;
  const std::string line = line_of(run);
  // Processes and threads append whole lines.
  const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  const bool is_written =
      file >= 0 && write(file, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  if (file >= 0) close(file);
  TORCH_CHECK(is_written, "OVERDRIVE_RECORDINGS is \"", path, "\", and a line cannot be written there.");
}

}  // namespace overdrive::replay
