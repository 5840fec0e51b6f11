// What a recording answers about itself: to the guards of a call, to the owner who makes room, to a step file
// and to the user.
#include "replay/recording/recording.h"

#include "engine/base/json_text.h"

#include <algorithm>
#include <array>
#include <ostream>

namespace overdrive::replay {

namespace {

// About what a recording takes, and each operator and value of a program, beside the arena.
constexpr size_t kRecordingBytes = size_t{2} << 10, kTableBytes = 512;

}  // namespace

Difference Recording::outside_difference() {
  for (const auto& apart : run_->program().aparts) {
    if (!apart->is_there)
      return "an overdrive::Apart that the step calls is gone; make it outside of the function";
  }
  const Difference outside = run_->guard().difference();
  // That a tensor is gone does not say that it was a gradient.
  if (run_->program().is_part()) {
    if (const char* reason = function_.part()->function().gradients().difference()) return reason;
  }
  if (outside) return outside;
  return numbers_.difference();
}

Difference Recording::take_difference() {
  const std::optional<Difference> known = std::exchange(difference_, std::nullopt);
  return known ? *known : outside_difference();
}

bool Recording::declines() {
  if (has_flags()) return flags_.difference() != nullptr;
  if (phase_ != Phase::kReady) return false;
  difference_ = outside_difference();
  const OutsideGuard& guard = run_->guard();
  return *difference_ && (gradients_matter_ || !guard.only_gradients_come_or_go()) && guard.may_fit_again();
}

bool Recording::would_replay(const Tensors& inputs) {
  if (!casts_.empty()) return false;  // nobody knows without making them
  return phase_ == Phase::kReady && !outside_difference() && shared_.harmless(inputs) &&
         inputs_.know(run_->program(), inputs) && !value_guards_.difference(inputs) && !is_compared() &&
         !timed_.next_is_eager();
}

bool Recording::has_met_one_of(const Tensors& tensors) const {
  const Program* program = run_ ? &run_->program() : recorded_.get();
  return program && std::any_of(tensors.begin(), tensors.end(),
                                [&](const at::Tensor& tensor) { return program->uses_memory_of(tensor); });
}

size_t Recording::bytes() const {
  if (!run_) return kRecordingBytes;
  const size_t runs = function_.part() ? std::max<size_t>(function_.part()->runs(), 1) : 1;
  size_t buffers = 0;
  for (const at::Tensor& buffer : run_->bound().buffers()) buffers += buffer.nbytes();
  const Program& program = run_->program();
  return kRecordingBytes + runs * (run_->bound().arena_bytes() + buffers +
                                   kTableBytes * (program.operators.size() + program.values.size()));
}

std::optional<ProgramToSave> Recording::to_save() {
  if (phase_ != Phase::kReady || !casts_.empty() || outside_difference()) return std::nullopt;
  TORCH_CHECK(run_->program().aparts.empty(),
              "The step cannot be saved: a function runs apart in it (overdrive::apart), which is code of the "
              "program.");
  return ProgramToSave{*run_, numbers_.optimizers(), value_guards_, signature_.inputs(), eager_cost_};
}

void Recording::explain(std::ostream& out) const {
  for (const InputSignature& input : signature_.inputs())
    out << "input " << at::toString(input.type) << at::IntArrayRef(input.sizes) << "\n";
  static constexpr std::array<const char*, 6> names{"not recorded yet", "to be recorded", "recorded once",
                                                    "replayed once",    "replayed",       "refused"};
  out << names[static_cast<size_t>(phase_)] << ", " << replays_ << " replays, recorded anew "
      << retries_.outdated() << " times\n";
  if (!refusal_.empty()) out << "refused: " << refusal_.text << "\n";
  if (!outdated_reason_.empty())
    out << "recorded anew the last time because: " << outdated_reason_.text << "\n";
  if (const std::string times = timed_.describe(); !times.empty()) out << times << "\n";
  numbers_.explain(out);
  if (function_.part() && function_.part()->runs() > 1)
    out << function_.part()->runs() << " runs, for calls whose graphs live\n";
  if (run_) explain_run(*run_, out);
}

std::string Recording::lanes_json() const {
  const auto text_of = [](const InputSignature& input) {
    return base::json_quoted(c10::str(at::toString(input.type), at::IntArrayRef(input.sizes)));
  };
  return "{\"inputs\": " + base::json_list(signature_.inputs(), text_of) +
         ", \"lanes\": " + (run_ && run_->runner() ? run_->runner()->to_json() : "null") + "}";
}

}  // namespace overdrive::replay
