#include "replay/run/replay_run.h"

#include "replay/record/compare.h"

#include <array>
#include <ostream>

namespace overdrive::replay {

namespace {

std::string text_of_value(const BoundProgram& bound, int value) {
  if (value < 0) return "none";
  const Value& noted = bound.program().values[value];
  static constexpr std::array<const char*, 5> origins{"m", "in", "out", "const", "gone"};
  const Memory& memory = bound.program().memories[noted.memory];
  return c10::str(origins[static_cast<size_t>(memory.origin)], noted.memory, at::IntArrayRef(noted.sizes));
}

void print_argument(const BoundProgram& bound, const Argument& argument, std::ostream& out) {
  if (argument.kind == Argument::Kind::kConstant) {
    out << text_of(argument.constant);
  } else if (argument.is_tensor()) {
    out << text_of_value(bound, argument.values[0]);
  } else {
    out << "[";
    for (size_t i = 0; i < argument.values.size(); ++i)
      out << (i ? ", " : "") << text_of_value(bound, argument.values[i]);
    out << "]";
  }
}

}  // namespace

void explain_run(const ReplayRun& run, std::ostream& out) {
  const Program& program = run.program();
  size_t kept = 0;
  for (const Memory& memory : program.memories) {
    if (memory.origin == Origin::kMade && memory.lives) kept += memory.bytes;
  }
  out << program.operators.size() << " operators recorded, " << run.steps().size() << " steps, "
      << run.lean_steps() << " of them lean; arena " << run.bound().arena_bytes()
      << " bytes, kept after a call " << kept << " bytes\n";
  static constexpr std::array<const char*, 3> forms{"out=", "in place", "copied"};
  for (const ReplayStep& step : run.steps()) {
    const Operator& op = program.operators[step.op];
    out << "  " << (step.boxed ? forms[static_cast<size_t>(step.boxed->form())] : "lean") << " " << op.name
        << "(";
    for (size_t i = 0; i < op.in.size(); ++i) {
      out << (i ? ", " : "");
      print_argument(run.bound(), op.in[i], out);
    }
    out << ") ->";
    for (const Argument& result : op.out) {
      out << " ";
      print_argument(run.bound(), result, out);
    }
    out << "\n";
  }
}

}  // namespace overdrive::replay
