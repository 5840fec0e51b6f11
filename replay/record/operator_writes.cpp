#include "replay/record/operator_writes.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_set>

namespace overdrive::replay {

c10::ArrayRef<int> hidden_writes(const std::string& name) {
  static constexpr std::array<int, 2> running_statistics{3, 4}, updated{1, 2};
  // In inference mode nothing takes the composite ones apart before the recorder sees them.
  if (name == "aten::native_batch_norm" || name == "aten::batch_norm" || name == "aten::instance_norm" ||
      name == "aten::_batch_norm_impl_index")
    return running_statistics;
  if (name == "aten::batch_norm_update_stats") return updated;
  return {};
}

bool writes_argument(const c10::Argument& argument) {
  const c10::AliasInfo* alias = argument.alias_info();
  if (!alias) return false;
  const auto& inner = alias->containedTypes();
  return alias->isWrite() ||
         std::any_of(inner.begin(), inner.end(), [](const auto& type) { return type.isWrite(); });
}

bool overwrites(const std::string& name, const c10::Argument& argument) {
  static const std::unordered_set<std::string_view> in_place{
      "aten::zero_",       "aten::fill_.Scalar", "aten::fill_.Tensor",     "aten::copy_",
      "aten::normal_",     "aten::uniform_",     "aten::bernoulli_.float", "aten::bernoulli_.Tensor",
      "aten::random_",     "aten::random_.to",   "aten::random_.from",     "aten::exponential_",
      "aten::log_normal_", "aten::cauchy_",      "aten::geometric_"};
  return argument.is_out() || in_place.contains(name);
}

bool reads_values(const std::string& name, size_t argument) {
  static const std::unordered_set<std::string_view> by_sizes{
      "aten::zeros_like",        "aten::ones_like", "aten::full_like",   "aten::empty_like", "aten::rand_like",
      "aten::randn_like",        "aten::new_zeros", "aten::new_ones",    "aten::new_full",   "aten::new_empty",
      "aten::bernoulli.p",       "aten::cauchy",    "aten::exponential", "aten::geometric",  "aten::log_normal",
      "aten::normal_functional", "aten::random",    "aten::random.from", "aten::random.to",  "aten::uniform"};
  return argument > 0 || !(by_sizes.contains(name) || name.starts_with("aten::randint_like"));
}

}  // namespace overdrive::replay
