// Why a call is not recorded or not replayed, or how it differs from the call before: a sentence, or a part of
// one, for the user, and beside it what code goes by. A value. No code reads the sentence.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace overdrive::replay {

// python/overdrive/native/recording.py has the same numbers.
enum class RefusalKind : uint8_t {
  kOther,
  // Part of a sentence: this one call is eager, and the next may be another case.
  kOfThisCall,
  // An operator uses a tensor from before the call that died in it.
  kDied,
  kGradientDied,
  // An operator uses a tensor from before the call that is another one in each call.
  kReplaced,
  kGradientReplaced,
  // What one call made lives on after the next.
  kHeld,
  // A leaf has lost or got its gradient between two calls, or has another one.
  kGradientChanged,
  // A replay that was compared differs from the eager call.
  kReplayDiffers,
  // Nothing is recorded for a while.
  kForAWhile,
};

struct Refusal {
  Refusal() = default;
  // NOLINTBEGIN(google-explicit-constructor): most refusals are a sentence, and nothing more.
  Refusal(const char* reason) : text(reason) {}
  Refusal(std::string reason, std::string name = {}, RefusalKind what = RefusalKind::kOther)
      : text(std::move(reason)), op(std::move(name)), kind(what) {}
  // NOLINTEND(google-explicit-constructor)
  Refusal(std::string reason, RefusalKind what) : text(std::move(reason)), kind(what) {}

  bool empty() const { return text.empty(); }
  // Inside of a longer sentence.
  Refusal with_text(std::string longer) const { return {std::move(longer), op, kind}; }

  std::string text;
  // The operator that it is about, if it is about one: whoever knows the program's lines tells where.
  std::string op;
  RefusalKind kind = RefusalKind::kOther;
};

// The same without a copy: what a guard finds in a call.
struct Difference {
  Difference() = default;
  // NOLINTBEGIN(google-explicit-constructor): as above.
  Difference(const char* reason, RefusalKind what = RefusalKind::kOther) : text(reason), kind(what) {}
  operator Refusal() const { return {text, kind}; }
  // NOLINTEND(google-explicit-constructor)
  explicit operator bool() const { return text != nullptr; }

  const char* text = nullptr;
  RefusalKind kind = RefusalKind::kOther;
};

}  // namespace overdrive::replay
