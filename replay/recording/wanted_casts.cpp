#include "replay/recording/wanted_casts.h"

#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <utility>

namespace overdrive::replay {

namespace {

// A backward meets the casts in the order of their nodes, the youngest first.
uint64_t age_of(const at::Tensor& cast) {
  const base::NodePtr node = cast.defined() ? cast.grad_fn() : nullptr;
  return node ? node->sequence_nr() : 0;
}

bool are_in_order(const std::vector<at::Tensor>& casts) {
  return std::is_sorted(casts.begin(), casts.end(),
                        [](const at::Tensor& a, const at::Tensor& b) { return age_of(a) < age_of(b); });
}

}  // namespace

bool WantedCasts::learn(const Program& program) {
  if (program.kept_casts.empty()) return false;
  for (const KeptCast& cast : program.kept_casts) all_.push_back(cast);
  // The operators of the function need not meet them in the order in which they were made.
  std::vector<std::pair<uint64_t, KeptCast>> by_age;
  const std::vector<at::Tensor> made = made_casts(all_);
  for (size_t i = 0; i < all_.size(); ++i) by_age.emplace_back(age_of(made[i]), all_[i]);
  std::stable_sort(by_age.begin(), by_age.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < all_.size(); ++i) all_[i] = by_age[i].second;
  signatures_.clear();
  return true;
}

std::optional<std::vector<at::Tensor>> WantedCasts::add_to(const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> all = inputs;
  std::vector<at::Tensor> casts = made_casts(all_);
  if (!are_in_order(casts)) return std::nullopt;
  for (at::Tensor& cast : casts) all.push_back(std::move(cast));
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
