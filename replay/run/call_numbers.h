// Numbers that the caller gives with each call, as an argument `beta` is: values of the program. Two recordings
// with other numbers show where each stands: a constant that differs has in both recordings the bits of one
// given number. Owned by a Recording; one thread at a time. Knows uses in operators that do the same for
// every such number; a number elsewhere is a difference of the recordings, as ever.
#pragma once

#include "replay/record/compare.h"
#include "replay/run/replay_run.h"

#include <cstdint>
#include <string>
#include <vector>

namespace overdrive::replay {

// In the caller's memory. Read at the end of a recording and at the begin of a replay.
struct GivenNumbers {
  const double* values = nullptr;
  const int64_t* count = nullptr;

  std::vector<double> now() const {
    return count ? std::vector<double>(values, values + *count) : std::vector<double>();
  }
};

class CallNumbers {
 public:
  explicit CallNumbers(const GivenNumbers& given) : given_(given) {}

  // A first recording has ended.
  void begin();
  // Whether each number is another one than in the recording before: one that is the same would be taken for a
  // constant.
  bool may_prove() const;
  // Notes in the second recording which constants are numbers of the call, apart from those that are others'.
  // Returns why a known one is another now, or nothing.
  Refusal find(const Program& before, Program& now, const MayDiffer& is_others);
  // The recording did not stand.
  void forget(Program& now);
  bool is_number(size_t op, size_t argument) const;
  bool is_read_by(size_t op) const;

  // With the numbers of the recording.
  void declare(ReplayRun& run) const;
  void bind(ReplayRun& run);
  void set_for_this_call() const;

  void explain(std::ostream& out) const;

 private:
  // An operator's argument, and the number that it is.
  struct Use {
    int op;
    int argument;
    size_t number;
    Step::State* step = nullptr;
  };
  // A number that LibTorch wrapped in a tensor.
  struct Wrapped {
    int memory;
    size_t number;
    double* place = nullptr;
  };

  Refusal find_arguments(const Program& before, Program& now, const MayDiffer& is_others);
  Refusal find_wrapped(const Program& before, Program& now, const MayDiffer& is_others);
  // The only given number that was one value in the recording before and is another now; -1: none, or several,
  // as beta and beta % 1 may be.
  int number_of(double before, double now) const;

  const GivenNumbers& given_;
  std::vector<Use> arguments_;
  std::vector<Wrapped> wrapped_;
  // Those of the last recording, and of the one that is looked at.
  std::vector<double> before_;
  std::vector<double> now_;
  // Whether two recordings have shown all uses.
  bool is_proven_ = false;
};

}  // namespace overdrive::replay
