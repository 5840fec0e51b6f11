#include "replay/recording/call_signature.h"

#include <algorithm>

namespace overdrive::replay {

CallSignature::CallSignature(const std::vector<at::Tensor>& inputs, const CaptureOptions& options,
                             const std::vector<WatchedValue>& watched)
    : environment_(Environment::now()),
      inputs_(signatures_of(inputs)),
      modes_(options.modules),
      watched_(watched) {}

bool CallSignature::fits(const Environment& environment, const std::vector<at::Tensor>& inputs) const {
  if (environment != environment_ || !replay::fits(inputs_, inputs) || !modes_.hold()) return false;
  return std::all_of(watched_.begin(), watched_.end(), [](const WatchedValue& value) { return value.holds(); });
}

bool CallSignature::has_values_of(const CallSignature& other) const {
  return environment_ == other.environment_ && modes_.same_as(other.modes_) &&
         std::equal(watched_.begin(), watched_.end(), other.watched_.begin(), other.watched_.end(),
                    [](const auto& a, const auto& b) { return a.bytes == b.bytes; });
}

}  // namespace overdrive::replay
