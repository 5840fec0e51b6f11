#include "replay/recording/compared_replays.h"

#include "engine/base/environment_value.h"

namespace overdrive::replay {

namespace {

// install() checks the variable as well, but a program that captures a step need not install the engine.
std::optional<uint64_t> check_every(const CaptureOptions& options) {
  if (options.check_every > 0) return options.check_every;
  return base::value_from_environment("OVERDRIVE_CAPTURE_CHECK");
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
