#include "replay/recording/wanted_casts.h"

#include <algorithm>

namespace overdrive::replay {

bool WantedCasts::learn(const Program& program) {
  if (program.kept_casts.empty()) return false;
  for (const KeptCast& cast : program.kept_casts) all_.push_back(cast);
  signatures_.clear();
  return true;
}

std::optional<std::vector<at::Tensor>> WantedCasts::add_to(const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> all = inputs;
  for (at::Tensor& cast : made_casts(all_)) all.push_back(std::move(cast));
  if (signatures_.empty() &&
      std::all_of(all.begin(), all.end(), [](const auto& each) { return each.defined(); }))
    signatures_ = signatures_of(all);
  if (!fits(signatures_, all)) return std::nullopt;
  return all;
}

void WantedCasts::forget() {
  all_.clear();
  signatures_.clear();
}

}  // namespace overdrive::replay
