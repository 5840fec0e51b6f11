#include "replay/plan/dependencies.h"

#include <algorithm>

namespace overdrive::replay {

namespace {

// All addresses, cut where a range of any step begins or ends. Remembers who used each piece last.
class Pieces {
 public:
  explicit Pieces(const std::vector<Touched>& steps) {
    for (const Touched& step : steps) {
      for (const auto* ranges : {&step.reads, &step.writes}) {
        for (const AddressRange& range : *ranges) {
          cuts_.push_back(range.begin);
          cuts_.push_back(range.end);
        }
      }
    }
    std::sort(cuts_.begin(), cuts_.end());
    cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
    pieces_.resize(cuts_.size());
  }

  void read(int step, const AddressRange& range, std::vector<int>& before) {
    for (size_t i = index(range.begin), end = index(range.end); i < end; ++i) {
      Piece& piece = pieces_[i];
      if (piece.writer >= 0) before.push_back(piece.writer);
      if (piece.readers.empty() || piece.readers.back() != step) piece.readers.push_back(step);
    }
  }

  void write(int step, const AddressRange& range, std::vector<int>& before) {
    for (size_t i = index(range.begin), end = index(range.end); i < end; ++i) {
      Piece& piece = pieces_[i];
      if (piece.writer >= 0) before.push_back(piece.writer);
      before.insert(before.end(), piece.readers.begin(), piece.readers.end());
      piece.writer = step;
      piece.readers.clear();
    }
  }

 private:
  struct Piece {
    int writer = -1;
    // Since then.
    std::vector<int> readers = {};
  };

  size_t index(uintptr_t address) const {
    return std::lower_bound(cuts_.begin(), cuts_.end(), address) - cuts_.begin();
  }

  std::vector<uintptr_t> cuts_;
  std::vector<Piece> pieces_;
};

}  // namespace

StepsBefore steps_before(const std::vector<Touched>& steps) {
  Pieces pieces(steps);
  StepsBefore result(steps.size());
  int last_alone = -1;
  for (int i = 0; i < static_cast<int>(steps.size()); ++i) {
    std::vector<int>& before = result[i];
    if (last_alone >= 0) before.push_back(last_alone);
    if (steps[i].alone) {
      for (int k = last_alone + 1; k < i; ++k) before.push_back(k);
      last_alone = i;
    }
    for (const AddressRange& range : steps[i].reads) pieces.read(i, range, before);
    for (const AddressRange& range : steps[i].writes) pieces.write(i, range, before);
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    if (!before.empty() && before.back() == i) before.pop_back();  // it reads what it writes
  }
  return result;
}

}  // namespace overdrive::replay
