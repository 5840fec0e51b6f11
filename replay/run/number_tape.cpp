#include "replay/run/number_tape.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace overdrive::replay {

namespace {

constexpr double kSmallest = 1e-30, kLargest = 1e30;
constexpr size_t kMostPlaces = 512;
constexpr const char* kVeryMany = "the function makes very many numbers of it";

thread_local NumberTape* active_tape = nullptr;

bool is_answer(bool equality, double a, double b, int answer) {
  if (equality) return (a == b) == (answer != 0);
  return (a < b ? -1 : a > b ? 1 : a == b ? 0 : 2) == answer;
}

}  // namespace

double compute(NumberOp op, double a, double b) {
  switch (op) {
    case NumberOp::kAdd:
      return a + b;
    case NumberOp::kSubtract:
      return a - b;
    case NumberOp::kMultiply:
      return a * b;
    case NumberOp::kDivide:
      return a / b;
    case NumberOp::kNegate:
      return -a;
    case NumberOp::kPower:
      return std::pow(a, b);
    case NumberOp::kExp:
      return std::exp(a);
    case NumberOp::kLog:
      return std::log(a);
    case NumberOp::kSqrt:
      return std::sqrt(a);
    case NumberOp::kConstant:
    case NumberOp::kArgument:
      break;
  }
  return a;
}

bool is_any_number(double number) {
  const double size = std::abs(number);
  return kSmallest < size && size < kLargest && size != 1;
}

NumberTape* NumberTape::active() { return active_tape; }
void NumberTape::set_active(NumberTape* tape) { active_tape = tape; }

bool NumberTape::Made::operator==(const Made& other) const {
  return op == other.op && a == other.a && b == other.b &&
         std::memcmp(&number, &other.number, sizeof number) == 0;
}

int NumberTape::place(Made made) {
  const auto known = std::find(made_.begin(), made_.end(), made);
  const auto found = static_cast<int>(known - made_.begin());
  if (known != made_.end()) return found;
  if (made.op == NumberOp::kArgument) {
    made.arguments = uint64_t{1} << made.a;
  } else if (made.op != NumberOp::kConstant) {
    made.arguments = made_[made.a].arguments | made_[made.b].arguments;
  }
  made_.push_back(made);
  if (made_.size() > kMostPlaces) hide_all(kVeryMany);
  return found;
}

void NumberTape::note(const Asked& asked) {
  if (std::find(asked_.begin(), asked_.end(), asked) == asked_.end()) asked_.push_back(asked);
}

void NumberTape::note_given(int place) {
  if (std::find(given_.begin(), given_.end(), place) != given_.end() || made_[place].arguments == 0) return;
  given_.push_back(place);
  if (given_.size() > kMostGivenNumbers) hide_all(kVeryMany);
}

void NumberTape::hide_arguments(uint64_t arguments, const char* why) {
  if (arguments == 0 || !is_open_) return;
  if (hidden_.fetch_or(arguments) == 0) why_ = why;
}

bool NumberTape::does_as(const NumberTape& other) const {
  return made_ == other.made_ && asked_ == other.asked_ && given_ == other.given_ && written_ == other.written_;
}

bool NumberTape::evaluate(const std::vector<double>& arguments, std::vector<double>& numbers) const {
  numbers.clear();
  for (const Made& made : made_) {
    numbers.push_back(made.op == NumberOp::kConstant   ? made.number
                      : made.op == NumberOp::kArgument ? arguments[made.a]
                                                       : compute(made.op, numbers[made.a], numbers[made.b]));
  }
  return std::all_of(asked_.begin(), asked_.end(), [&](const Asked& each) {
    return is_answer(each.equality, numbers[each.a], numbers[each.b], each.answer);
  });
}

void NumberTape::write(const std::vector<double>& numbers) const {
  for (const auto& [where, place] : written_) *where = numbers[place];
}

}  // namespace overdrive::replay
