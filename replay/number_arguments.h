// The numbers that a captured function is given: which recordings a call belongs to by them, and which numbers
// of those are values of the program. Owned by a CapturedFunction; one thread at a time. The library finds
// where each of them stands (run/call_numbers.h).
//
// Note [Numbers as arguments]
// A first call has recordings for its values. Numbers that a later call has otherwise are left open: their
// recordings are for any value, as long as the function gets the same answers when it compares numbers, and
// none that it gives to LibTorch is 0, 1 or -1, with which operators do something else. An argument whose tape
// does not tell all is never open again: each value has recordings of its own. So has every one of a part,
// whose graph may run the function once more when the call is over.
#pragma once

#include "replay/number.h"
#include "replay/run/call_numbers.h"
#include "replay/run/number_tape.h"

#include <array>
#include <cstdint>
#include <iosfwd>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace overdrive::replay {

constexpr const char* kWithoutNumbers =
    "The captured function takes numbers, and was called without them; call the step as the function.";

class NumberArguments {
 public:
  explicit NumberArguments(bool is_part) : is_part_(is_part) {}

  // Before a call: finds the set of values that it has, and gives the library its numbers. `useful`: how many
  // calls were replayed, or compared with a replay.
  void choose(const std::vector<Number>& numbers, uint64_t useful);
  // The numbers as the function gets them, on a new tape. Of one run of the function.
  std::vector<Number> begin_run();
  // The function has returned, and its numbers are gone.
  void end_run();
  void forget();

  // Another one has recordings of its own.
  const int64_t& variant() const { return variant_; }
  GivenNumbers given() const { return {given_.data(), &count_}; }

  const std::vector<double>& values() const { return values_; }
  // Why nearly every call has a recording of its own, or nothing.
  std::string refusal() const;
  void explain(std::ostream& out) const;

 private:
  using Bits = uint64_t;
  struct Variant {
    int64_t number;
    // Of the last call that it took.
    std::vector<double> values;
    // Arguments that may have any value.
    Bits open = 0;
    // Of the first recording: its tape, with all numbers by their places, and its arguments.
    std::shared_ptr<NumberTape> tape = nullptr;
    std::vector<double> recorded = {};
    std::vector<double> recorded_for = {};
    // Places of numbers for the library, and of others that must be equal to one of them.
    std::vector<int> given = {};
    std::vector<std::pair<int, int>> equal = {};
    int recordings = 0;
    int runs = 0;
    bool is_useful = false;
    // A number that the function makes cannot have any value.
    bool is_worthless = false;

    // Of two that take a call, the one with less doubt gets it.
    int doubt() const { return open == 0 ? 1 : recordings > 1 ? 0 : 3 - recordings; }
  };

  void settle_last_call(uint64_t useful);
  bool takes(const Variant& variant);
  Bits numbers_to_open() const;
  void record(Variant& variant, const std::shared_ptr<NumberTape>& tape);
  void sort_given(Variant& variant);
  void give(const Variant& variant);
  void close(Bits arguments, const char* why);

  const bool is_part_;
  // The one of the last call comes last.
  std::list<Variant> variants_;
  std::vector<double> values_;
  std::shared_ptr<NumberTape> tape_;
  uint64_t useful_ = 0;
  // Arguments that are never open, and why.
  Bits closed_ = 0;
  std::map<size_t, std::string> why_closed_;
  // How often a set of arguments was left open.
  std::map<Bits, int> attempts_;
  uint64_t new_in_turn_ = 0;
  // By places; of the variant that was looked at last.
  std::vector<double> numbers_;

  int64_t last_number_ = 0;
  int64_t variant_ = 0;
  int64_t count_ = 0;
  std::array<double, kMostGivenNumbers> given_{};
};

// The numbers of the call that is under way on this thread, for the function. Calls may be inside of calls.
class NumbersOfCall {
 public:
  explicit NumbersOfCall(const std::vector<Number>& numbers);
  ~NumbersOfCall();
  NumbersOfCall(const NumbersOfCall&) = delete;
  NumbersOfCall& operator=(const NumbersOfCall&) = delete;
  static NumbersOfCall* active();

  // They may be values of a program.
  void belong_to(NumberArguments& arguments) { arguments_ = &arguments; }
  const std::vector<Number>& numbers() const { return numbers_; }
  std::vector<Number> begin_run() const { return arguments_ ? arguments_->begin_run() : numbers_; }
  void end_run() const {
    if (arguments_) arguments_->end_run();
  }

 private:
  const std::vector<Number>& numbers_;
  NumberArguments* arguments_ = nullptr;
  NumbersOfCall* const before_;
  NumberTape* const tape_before_;
};

}  // namespace overdrive::replay
