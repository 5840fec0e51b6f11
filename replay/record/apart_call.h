// Functions that run apart: eagerly, in the middle of a captured step, in its replays too. The function gets
// copies of tensors of the step, and copies of what it returns are values of the rest. Used on the calling
// thread.
//
// Note [Once in a call]: a call of a captured step may run more than once: a replay that is taken back is made
// eagerly, and a recording is proved by two replays. What runs apart has effects that nobody can take back, as
// a step of an environment, so it runs once. The tape of the call has what each function was given, returned or
// threw, and the random numbers after it; a later run of the same call reads the tape where it gives a function
// the same bits.
#pragma once

#include "replay/record/changed_apart.h"
#include "replay/record/program.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <exception>
#include <memory>
#include <utility>
#include <vector>

namespace overdrive::replay {

class ApartTape {
 public:
  // The tape of the call of a captured step that is under way on this thread; null: there is none.
  static ApartTape* active();
  // From the first function on: the call runs once more. `may_call`: whether a function may run that is given
  // other bits than the tape has; otherwise it is an error.
  static void rewind(bool may_call);

  // Of one call, up to its end.
  ApartTape();
  ~ApartTape();
  ApartTape(const ApartTape&) = delete;
  ApartTape& operator=(const ApartTape&) = delete;

  // A captured part runs in the call: its programs, and what it runs again, are none of the tape's, which goes
  // on with what runs apart.
  class Part {
   public:
    Part() : tape_(active()) {
      if (tape_) ++tape_->parts_;
    }
    ~Part() {
      if (tape_) --tape_->parts_;
    }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

   private:
    ApartTape* const tape_;
  };
  bool is_in_a_part() const { return parts_ > 0; }

  // The program whose operators run from now on, up to rewind().
  void follow(const Program& program, bool is_replay) {
    if (is_in_a_part()) return;
    program_ = &program;
    is_replay_ = is_replay;
  }
  // The operator of a program: the function at this place, or what the tape has of it.
  std::vector<at::Tensor> run(int64_t place, const std::vector<at::Tensor>& inputs);
  // The same for a function that no program has.
  std::vector<at::Tensor> run(const ApartFunction& function, const std::vector<at::Tensor>& inputs);
  // Whether a function has changed a tensor that the program knows, since the last question.
  bool take_changed() { return std::exchange(has_changed_, false); }

 private:
  struct Made {
    uint64_t given;
    std::vector<at::Tensor> results = {};
    std::exception_ptr error = {};
    // Where the function has drawn random numbers.
    at::Tensor generator = {};
  };
  // Of the tensors that the program knows: versions, whether a gradient is wanted, and where they are.
  std::vector<int64_t> states() const;
  std::vector<at::Tensor> called(const ApartFunction& function, const std::vector<at::Tensor>& copies,
                                 Made& made);

  ApartTape* const around_;
  const c10::impl::LocalDispatchKeySet keys_;
  const bool grad_mode_;
  std::vector<Made> made_;
  size_t next_ = 0;
  bool may_call_ = true;
  bool is_replay_ = false;
  bool has_changed_ = false;
  int parts_ = 0;
  const Program* program_ = nullptr;
};

// Where no captured step is under way: on copies, and what it returns is copied.
std::vector<at::Tensor> run_apart_alone(const ApartFunction& function, const std::vector<at::Tensor>& inputs);

// The operator overdrive::apart, once.
const c10::OperatorHandle& apart_operator();

// The function that runs apart now has changed what its captured step looks at: a replay is taken back.
void note_outdated_by_apart();
// Whether that is why the last replay of this thread was taken back.
bool take_outdated_by_apart();

}  // namespace overdrive::replay
