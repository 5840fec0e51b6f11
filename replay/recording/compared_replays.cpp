#include "replay/recording/compared_replays.h"

#include <c10/util/Exception.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace overdrive::replay {

namespace {

// install() checks the variable as well, but a program that captures a step need not install the engine.
std::optional<uint64_t> check_every(const CaptureOptions& options) {
  if (options.check_every > 0) return options.check_every;
  const char* text = std::getenv("OVERDRIVE_CAPTURE_CHECK");
  if (!text || !*text) return std::nullopt;
  int every = -1;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, every);
  TORCH_CHECK(error == std::errc{} && stop == end && every >= 0, "OVERDRIVE_CAPTURE_CHECK is \"", text,
              "\", but must be a whole number from 0 to ", std::numeric_limits<int>::max(), ".");
  return static_cast<uint64_t>(every);
}

bool is_power_of_ten(uint64_t number) {
  while (number >= 10 && number % 10 == 0) number /= 10;
  return number == 1;
}

}  // namespace

ComparedReplays::ComparedReplays(const CaptureOptions& options) : every_(check_every(options)) {}

bool ComparedReplays::has(uint64_t number) const {
  if (!every_) return number >= 10 && is_power_of_ten(number);
  return *every_ > 0 && number % *every_ == 0;
}

}  // namespace overdrive::replay
