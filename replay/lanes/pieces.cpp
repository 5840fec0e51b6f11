#include "replay/lanes/pieces.h"

#include "replay/passes/operator_kind.h"
#include "replay/passes/step_accesses.h"

#include <algorithm>

namespace overdrive::replay {

namespace {

// Of pieces before which something must not happen and of those, both counted together.
constexpr size_t kMostPairs = 1 << 20;
// Of all generators of random numbers: an address that no memory has.
constexpr AddressRange kGenerators{1, 2};

Touched touched_by(const ReplayRun& run, const ReplayStep& step) {
  const auto range_of = [&](int memory) {
    const c10::Storage& storage = run.bound().storage(memory);
    const auto begin = reinterpret_cast<uintptr_t>(storage.data());
    return AddressRange{begin, begin + storage.nbytes()};
  };
  Touched result;
  if (step.fills) {
    result.writes.push_back(range_of(step.filled));
    return result;
  }
  const StepAccesses accesses = accesses_of(run.program(), step.op);
  result.alone = accesses.is_foreign;
  for (const int memory : accesses.reads) result.reads.push_back(range_of(memory));
  for (const int memory : accesses.writes) result.writes.push_back(range_of(memory));
  if (accesses.draws) result.writes.push_back(kGenerators);
  return result;
}

}  // namespace

Pieces::Pieces(const ReplayRun& run, const Division& division) {
  for (size_t i = 0; i < run.steps().size(); ++i) add(run, static_cast<int>(i), division[i]);
  find_steps_before();
}

void Pieces::add(const ReplayRun& run, int step, const std::vector<Share>& shares) {
  const ReplayStep& whole = run.steps()[step];
  const bool can_be_taken_back = whole.op < run.first_unsaved();
  const bool changes_unsaved = !whole.fills && !can_be_taken_back && run.changes_unsaved(whole.op);
  const bool throws = can_be_taken_back && !whole.fills &&
                      (whole.boxed || may_throw_on_data(run.program(), run.program().operators[whole.op]));
  const auto add_piece = [&](const Step& work, Touched touched) {
    const int index = static_cast<int>(pieces_.size());
    if (throws) may_throw_.push_back(index);
    if (changes_unsaved) changing_.push_back(index);
    pieces_.push_back({step, &work, std::move(touched), changes_unsaved});
  };
  if (shares.empty()) add_piece(whole.step, touched_by(run, whole));
  for (const Share& share : shares) add_piece(share.step, share.touched);
}

void Pieces::find_steps_before() {
  if (may_throw_.size() * changing_.size() > kMostPairs) return;
  std::vector<Touched> touched;
  for (const Piece& piece : pieces_) touched.push_back(piece.touched);
  before_ = steps_before(touched);
  for (const int piece : changing_) {
    std::vector<int>& before = (*before_)[piece];
    before.insert(before.end(), may_throw_.begin(), may_throw_.end());
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
  }
}

StepsToSchedule TimedPieces::to_schedule() const {
  StepsToSchedule steps{.before = *pieces.before(), .costs = costs, .on_caller = {}};
  for (size_t i = 0; i < pieces.size(); ++i) steps.on_caller.push_back(pieces[i].touched.alone);
  return steps;
}

}  // namespace overdrive::replay
