#include "replay/number_arguments.h"

#include "replay/record/compare.h"
#include "replay/record/recorder.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <ostream>

namespace overdrive::replay {

namespace {

// Runs without a replay after which the numbers will never stand in a program, how often a set of arguments is
// left open, for the ways that the function goes by them, and how many sets of values are known.
constexpr int kMostRuns = 16, kMostAttempts = 16;
constexpr size_t kMostVariants = 64;
// Calls in turn, each with a value that is a constant, which are told.
constexpr uint64_t kNewInTurn = 8;

thread_local NumbersOfCall* active_call = nullptr;

bool has(uint64_t bits, size_t index) { return (bits >> index & 1) != 0; }

uint64_t differing(const std::vector<double>& a, const std::vector<double>& b) {
  uint64_t bits = 0;
  for (size_t i = 0; i < a.size(); ++i) bits |= uint64_t{!same_bits(a[i], b[i])} << i;
  return bits;
}

}  // namespace

void NumberArguments::choose(const std::vector<Number>& numbers, uint64_t useful) {
  settle_last_call(useful);
  values_.clear();
  for (const Number& number : numbers) values_.push_back(number.value_);
  auto found = variants_.end();
  for (auto each = variants_.begin(); each != variants_.end(); ++each) {
    if ((found == variants_.end() || each->doubt() <= found->doubt()) && takes(*each)) found = each;
  }
  if (found != variants_.end()) {
    variants_.splice(variants_.end(), variants_, found);
    new_in_turn_ = 0;
  } else {
    const Bits open = numbers_to_open();
    if (open != 0) ++attempts_[open];
    new_in_turn_ = open != 0 ? 0 : new_in_turn_ + 1;
    if (variants_.size() >= kMostVariants) variants_.pop_front();
    variants_.push_back({.number = ++last_number_, .values = values_, .open = open});
  }
  Variant& variant = variants_.back();
  variant.values = values_;
  variant_ = variant.number;
  give(variant);
  if (variant.tape) variant.tape->write(numbers_);
}

// What became of the call before.
void NumberArguments::settle_last_call(uint64_t useful) {
  const bool was_useful = std::exchange(useful_, useful) != useful;
  if (variants_.empty()) return;
  Variant& last = variants_.back();
  last.is_useful |= was_useful;
  if (last.open != 0 && !last.is_useful && last.runs > kMostRuns)
    close(last.open, "recordings do not show where it stands in the program");
}

// Whether a call with these values may have the program. Leaves in numbers_ what the function makes of them.
bool NumberArguments::takes(const Variant& variant) {
  if (variant.is_worthless || (variant.open & closed_) != 0) return false;
  for (size_t i = 0; i < values_.size(); ++i) {
    if (has(variant.open, i) ? !is_any_number(values_[i]) : !same_bits(values_[i], variant.values[i]))
      return false;
  }
  if (!variant.tape) return true;
  if (!variant.tape->evaluate(values_, numbers_)) return false;
  for (const int place : variant.given) {
    if (!is_any_number(numbers_[place])) return false;
    // A second recording has other numbers, or nothing is shown.
    if (variant.recordings == 1 && same_bits(numbers_[place], variant.recorded[place])) return false;
  }
  return std::all_of(variant.equal.begin(), variant.equal.end(),
                     [&](const auto& pair) { return same_bits(numbers_[pair.first], numbers_[pair.second]); });
}

// Arguments that have another value than in the call before, or were open in it.
NumberArguments::Bits NumberArguments::numbers_to_open() const {
  if (is_part_ || variants_.empty()) return 0;
  const Variant& last = variants_.back();
  Bits open = (last.open | differing(last.values, values_)) & ~closed_;
  for (size_t i = 0; i < values_.size(); ++i) {
    if (!is_any_number(values_[i])) open &= ~(Bits{1} << i);
  }
  // A value that comes a second time, and no other one, is a constant as far as anybody knows.
  for (const Variant& variant : variants_) {
    if (variant.open == open && variant.recordings == 1) open &= differing(variant.recorded_for, values_);
  }
  const auto attempts = attempts_.find(open);
  return attempts != attempts_.end() && attempts->second >= kMostAttempts ? 0 : open;
}

void NumberArguments::give(const Variant& variant) {
  count_ = 0;
  if (!variant.tape || variant.is_worthless || (variant.open & closed_) != 0) return;
  (void)variant.tape->evaluate(values_, numbers_);
  for (const int place : variant.given) given_[static_cast<size_t>(count_++)] = numbers_[place];
}

std::vector<Number> NumberArguments::begin_run() {
  Variant& variant = variants_.back();
  ++variant.runs;
  tape_ = std::make_shared<NumberTape>();
  NumberTape::set_active(tape_.get());
  std::vector<Number> numbers;
  for (size_t i = 0; i < values_.size(); ++i) {
    numbers.push_back(has(variant.open, i) ? Number(values_[i], tape_, tape_->argument(i))
                                           : Number(values_[i]));
  }
  return numbers;
}

void NumberArguments::end_run() {
  const std::shared_ptr<NumberTape> tape = std::exchange(tape_, nullptr);
  NumberTape::set_active(nullptr);
  if (tape.use_count() > 1) tape->hide_all("the function keeps it after the call");
  tape->close();
  Variant& variant = variants_.back();
  if (const Bits hidden = tape->hidden() & variant.open) close(hidden, tape->why_hidden());
  if (Recorder::active()) record(variant, tape);
  give(variant);
}

void NumberArguments::record(Variant& variant, const std::shared_ptr<NumberTape>& tape) {
  ++variant.recordings;
  if (!variant.tape) {
    variant.tape = tape;
    variant.recorded_for = values_;
    sort_given(variant);
  } else if (!variant.tape->does_as(*tape)) {
    close(variant.open, "the function does something else with it in other calls");
    if (variant.open == 0)
      Recorder::active()->refuse("Number::write_to() writes elsewhere, or another number, in each call.");
  }
}

// Two that have the same value are one number, which must be so in each call; and one that cannot have any
// value makes the recording worth nothing.
void NumberArguments::sort_given(Variant& variant) {
  (void)variant.tape->evaluate(values_, numbers_);
  variant.recorded = numbers_;
  for (const int place : variant.tape->given()) {
    const auto equal = std::find_if(variant.given.begin(), variant.given.end(),
                                    [&](int known) { return same_bits(numbers_[known], numbers_[place]); });
    variant.is_worthless |= !is_any_number(numbers_[place]);
    if (equal == variant.given.end()) {
      variant.given.push_back(place);
    } else {
      variant.equal.emplace_back(*equal, place);
    }
  }
}

void NumberArguments::forget() {
  variants_.clear();
  closed_ = 0;
  why_closed_.clear();
  attempts_.clear();
  new_in_turn_ = 0;
}

void NumberArguments::close(Bits arguments, const char* why) {
  closed_ |= arguments;
  for (size_t i = 0; i < values_.size(); ++i) {
    if (has(arguments, i)) why_closed_.emplace(i, why);
  }
}

std::string NumberArguments::refusal() const {
  if (new_in_turn_ < kNewInTurn) return "";
  std::string text = "Nearly every call has another number, and each has a recording of its own";
  for (const auto& [argument, why] : why_closed_) {
    text += c10::str("; number ", argument + 1, " of the call is a constant, since ", why);
  }
  return text + ". Compute with the Number, compare it, or give a tensor.";
}

void NumberArguments::explain(std::ostream& out) const {
  for (const auto& [argument, why] : why_closed_)
    out << "number " << argument + 1 << " of the call is a constant of each recording, since " << why << "\n";
}

NumbersOfCall::NumbersOfCall(const std::vector<Number>& numbers)
    : numbers_(numbers), before_(std::exchange(active_call, this)), tape_before_(NumberTape::active()) {}

NumbersOfCall::~NumbersOfCall() {
  active_call = before_;
  NumberTape::set_active(tape_before_);
}

NumbersOfCall* NumbersOfCall::active() { return active_call; }

}  // namespace overdrive::replay
