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
  const int lies_in = bound.passes().lies_in[noted.memory];
  const Memory& memory = bound.program().memories[lies_in];
  return c10::str(origins[static_cast<size_t>(memory.origin)], lies_in, at::IntArrayRef(noted.sizes));
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

const char* form_of(const ReplayStep& step) {
  static constexpr std::array<const char*, 4> forms{"out=", "in place", "copied", "into borrowed storage"};
  return step.boxed ? forms[static_cast<size_t>(step.boxed->form())] : "direct";
}

void print_step(const ReplayRun& run, const char* form, int index, std::ostream& out) {
  const Operator& op = run.program().operators[index];
  out << "  " << form << " " << op.name << "(";
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

// Operators that no replay runs.
void print_passes(const ReplayRun& run, std::ostream& out) {
  const Passes& passes = run.bound().passes();
  out << "passes: " << passes.count(Fate::kTwin) << " steps have the result of another, "
      << passes.count(Fate::kOnce) << " are made once, " << passes.count(Fate::kUnneeded) << " are not needed, "
      << passes.in_place << " results lie where an operand was\n";
  static constexpr std::array<const char*, 4> fates{"", "as before", "once", "unneeded"};
  for (size_t i = 0; i < passes.fates.size(); ++i) {
    if (!passes.runs(i)) print_step(run, fates[static_cast<size_t>(passes.fates[i])], static_cast<int>(i), out);
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
      << run.direct_steps() << " of them direct; arena " << run.bound().arena_bytes()
      << " bytes, kept after a call " << kept << " bytes\n";
  if (run.runner()) run.runner()->explain(out);
  for (const ReplayStep& step : run.steps()) print_step(run, form_of(step), step.op, out);
  print_passes(run, out);
}

}  // namespace overdrive::replay
