// One operator of a replay, with everything it needs resolved: a function and its state. Made at capture by
// boxed_step.h or by the families of direct/, owned by its ReplayRun, run by one thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace overdrive::replay {

struct Share;

class Step {
 public:
  struct State {
    virtual ~State();
    // The next runs see this number as the operator's argument. False where the state cannot change it.
    virtual bool set_number(size_t argument, double value) { return false; }
    // About so many steps that together do what this one does, or none where it cannot be divided (share.h).
    virtual std::vector<Share> shares(int count) const;
  };

  Step(void (*run)(State&), std::unique_ptr<State> state) : run_(run), state_(std::move(state)) {}

  void operator()() const { run_(*state_); }
  State& state() const { return *state_; }

 private:
  void (*run_)(State&);
  std::unique_ptr<State> state_;
};

// A step that calls the function, a lambda as a rule.
template <typename Function>
Step step_of(Function function) {
  struct Holder final : Step::State {
    explicit Holder(Function f) : call(std::move(f)) {}
    Function call;
  };
  return Step([](Step::State& state) { static_cast<Holder&>(state).call(); },
              std::make_unique<Holder>(std::move(function)));
}

}  // namespace overdrive::replay
