// Which replays are made eagerly as well, and compared: every n-th, or, where nothing says so, the 10th, the
// 100th, the 1,000th and so on. A value, made when a recording begins.
#pragma once

#include "replay/capture_options.h"

#include <cstdint>
#include <optional>

namespace overdrive::replay {

class ComparedReplays {
 public:
  // Reads OVERDRIVE_CAPTURE_CHECK where the options say nothing; throws at a bad value.
  explicit ComparedReplays(const CaptureOptions& options);
  // `number`: of the replay, from 1.
  bool has(uint64_t number) const;
  // Whether any is.
  bool has_any() const { return !every_ || *every_ > 0; }

 private:
  // 0: none.
  const std::optional<uint64_t> every_;
};

}  // namespace overdrive::replay
