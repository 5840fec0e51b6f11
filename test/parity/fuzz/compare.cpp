#include "test/parity/fuzz/compare.h"

#include "engine/engine.h"
#include "test/parity/fuzz/interpreter.h"

namespace overdrive::fuzz {

namespace {

// The scalar that starts a host frame, kept per thread; these threads are new.
constexpr int64_t kFrameBytes = 16;

}  // namespace

void prepare() {
  at::set_num_threads(1);                   // other counts, other bits
  c10::WarningUtils::set_warnAlways(true);  // or the first engine would get them all
  tensor_bytes();                           // from here on
}

Contender stock() {
  return {"stock", [] { overdrive::uninstall(); }};
}
Contender ours() {
  return {"overdrive", [] { overdrive::install(); }};
}

Observation observe(const Program& program, Reached* reached, const std::function<void()>& on_switch,
                    const LaneScope& on_lane) {
  Interpreter run(program.seed, program.watch, on_switch, on_lane);
  for (const Statement& s : program.statements) run.step(s);
  run.finish();
  if (reached) *reached = run.reached();
  return run.observation();
}

std::optional<Difference> compare(const Observation& left, const Observation& right) {
  const size_t n = std::max(left.lines.size(), right.lines.size());
  const auto line = [](const Observation& o, size_t i) {
    return i < o.lines.size() ? o.lines[i] : "(nothing more)";
  };
  for (size_t i = 0; i < n; ++i) {
    if (line(left, i) != line(right, i))
      return Difference{line(left, i), line(right, i), i ? line(left, i - 1) : ""};
  }
  for (size_t i = 0; i < std::min(left.peaks.size(), right.peaks.size()); ++i) {
    if (right.peaks[i] <= left.peaks[i] + kFrameBytes) continue;
    const std::string where = c10::str("peak of backward ", i, ", in bytes: ");
    return Difference{c10::str(where, left.peaks[i]), c10::str(where, right.peaks[i]), ""};
  }
  return std::nullopt;
}

std::optional<Difference> compare(const Program& program, const Contender& left, const Contender& right,
                                  Reached* reached) {
  left.enter();
  const Observation a = observe(program, reached);
  right.enter();
  // In the middle of a backward of the right engine the left one becomes the default, then the
  // right one again, and so on.
  bool on_left = false;
  const Observation b = observe(program, nullptr, [&] {
    on_left = !on_left;
    (on_left ? left : right).enter();
  });
  left.enter();
  return compare(a, b);
}

}  // namespace overdrive::fuzz
