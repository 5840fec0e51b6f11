#include "replay/number.h"

#include "replay/record/recorder.h"
#include "replay/run/number_tape.h"

#include <utility>

namespace overdrive {

using replay::NumberOp;
using replay::NumberTape;

Number::Number(double value) : value_(value) {}
Number::Number(double value, std::shared_ptr<NumberTape> tape, int place)
    : value_(value), tape_(std::move(tape)), place_(place) {}
Number::~Number() = default;
Number::Number(const Number&) = default;
Number& Number::operator=(const Number&) = default;

std::shared_ptr<NumberTape> Number::tape_of(const Number& a, const Number& b) {
  for (const Number* each : {&a, &b}) {
    if (!each->tape_ || !each->tape_->is_open()) continue;
    if (each->tape_->is_of_this_thread()) return each->tape_;
    each->tape_->hide_all("another thread uses it");
  }
  return nullptr;
}

int Number::place_on(NumberTape& tape) const { return tape_.get() == &tape ? place_ : tape.constant(value_); }

Number Number::made(NumberOp op, const Number& a, const Number& b) {
  Number number(replay::compute(op, a.value_, b.value_));
  number.tape_ = tape_of(a, b);
  if (number.tape_)
    number.place_ = number.tape_->made(op, a.place_on(*number.tape_), b.place_on(*number.tape_));
  return number;
}

Number::operator at::Scalar() const {
  if (const auto tape = tape_of(*this, *this)) tape->note_given(place_);
  return value_;
}

void Number::write_to(double& option) const {
  if (NumberTape* tape = NumberTape::active()) {
    tape->note_written(&option, place_on(*tape));
  } else if (auto* recorder = replay::Recorder::active()) {
    recorder->refuse(
        "Number::write_to() is called where no replay repeats it; call it in a captured step that is given a "
        "Number, and not in a part.");
  }
  option = value_;
}

double Number::value() const {
  if (const auto tape = tape_of(*this, *this)) tape->hide(place_, "value() of it is called");
  return value_;
}

Number operator+(const Number& a, const Number& b) { return Number::made(NumberOp::kAdd, a, b); }
Number operator-(const Number& a, const Number& b) { return Number::made(NumberOp::kSubtract, a, b); }
Number operator*(const Number& a, const Number& b) { return Number::made(NumberOp::kMultiply, a, b); }
Number operator/(const Number& a, const Number& b) { return Number::made(NumberOp::kDivide, a, b); }
Number operator-(const Number& a) { return Number::made(NumberOp::kNegate, a, a); }
Number pow(const Number& a, const Number& b) { return Number::made(NumberOp::kPower, a, b); }
Number exp(const Number& a) { return Number::made(NumberOp::kExp, a, a); }
Number log(const Number& a) { return Number::made(NumberOp::kLog, a, a); }
Number sqrt(const Number& a) { return Number::made(NumberOp::kSqrt, a, a); }

std::partial_ordering operator<=>(const Number& a, const Number& b) {
  const std::partial_ordering order = a.value_ <=> b.value_;
  if (const auto tape = Number::tape_of(a, b)) {
    const int answer = order < 0 ? -1 : order > 0 ? 1 : order == 0 ? 0 : 2;
    tape->note_order(a.place_on(*tape), b.place_on(*tape), answer);
  }
  return order;
}

bool operator==(const Number& a, const Number& b) {
  const bool answer = a.value_ == b.value_;
  if (const auto tape = Number::tape_of(a, b))
    tape->note_equality(a.place_on(*tape), b.place_on(*tape), answer);
  return answer;
}

}  // namespace overdrive
