// How one run of a captured function makes numbers of its arguments, what it asked of them, and which ones it
// gave to LibTorch. Written on the thread of the run until that is over, then fixed. A number that is looked at
// in another way is hidden: the tape does not tell what becomes of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace overdrive::replay {

enum class NumberOp : uint8_t {
  kConstant,
  kArgument,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kNegate,
  kPower,
  kExp,
  kLog,
  kSqrt
};

// Of a run that is replayed.
constexpr size_t kMostGivenNumbers = 64;

// Of two numbers; the second one of an operation on one number does not matter.
double compute(NumberOp op, double a, double b);
// Whether operators do the same with it as with most numbers: not with 0, 1 and -1.
bool is_any_number(double number);

class NumberTape {
 public:
  // The tape of the run that is under way on this thread, or null.
  static NumberTape* active();
  static void set_active(NumberTape* tape);

  // Places on the tape. The same number has the same place.
  int argument(size_t index) { return place({NumberOp::kArgument, static_cast<int>(index)}); }
  int constant(double number) { return place({.op = NumberOp::kConstant, .number = number}); }
  int made(NumberOp op, int a, int b) { return place({op, a, b}); }

  // The function has compared two numbers: -1, 0, 1, or 2 where they have no order; or asked whether they are
  // equal.
  void note_order(int a, int b, int answer) { note({a, b, answer, false}); }
  void note_equality(int a, int b, bool answer) { note({a, b, answer, true}); }
  // It has given a number to LibTorch, or written it somewhere.
  void note_given(int place);
  void note_written(double* where, int place) { written_.emplace_back(where, place); }
  // It has looked at it in another way. Any thread, with all arguments.
  void hide(int place, const char* why) { hide_arguments(made_[place].arguments, why); }
  void hide_all(const char* why) { hide_arguments(~uint64_t{0}, why); }

  // The run is over; numbers of it that are kept are constants.
  void close() { is_open_ = false; }
  bool is_open() const { return is_open_; }
  bool is_of_this_thread() const { return thread_ == std::this_thread::get_id(); }
  // As bits of arguments, and why.
  uint64_t hidden() const { return hidden_; }
  const char* why_hidden() const { return why_; }

  // Whether another run did the same with its numbers.
  bool does_as(const NumberTape& other) const;
  const std::vector<int>& given() const { return given_; }
  // All numbers by their places. False: the function would get another answer of a comparison.
  bool evaluate(const std::vector<double>& arguments, std::vector<double>& numbers) const;
  void write(const std::vector<double>& numbers) const;

 private:
  struct Made {
    NumberOp op;
    int a = -1;
    int b = -1;
    double number = 0;
    // Of which arguments it is made, as bits.
    uint64_t arguments = 0;
    bool operator==(const Made& other) const;
  };
  struct Asked {
    int a;
    int b;
    int answer;
    bool equality;
    bool operator==(const Asked&) const = default;
  };

  int place(Made made);
  void note(const Asked& asked);
  void hide_arguments(uint64_t arguments, const char* why);

  const std::thread::id thread_ = std::this_thread::get_id();
  std::vector<Made> made_;
  std::vector<Asked> asked_;
  std::vector<int> given_;
  std::vector<std::pair<double*, int>> written_;
  // Any thread.
  std::atomic<bool> is_open_ = true;
  std::atomic<uint64_t> hidden_ = 0;
  std::atomic<const char*> why_ = "";
};

}  // namespace overdrive::replay
