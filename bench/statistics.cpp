#include "bench/statistics.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

namespace overdrive::bench {

namespace {

double middle_of_sorted(const std::vector<double>& sorted) {
  const size_t n = sorted.size();
  return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

}  // namespace

double median(std::vector<double> samples) { return median_interval(std::move(samples)).middle; }

Interval median_interval(std::vector<double> samples) {
  TORCH_CHECK(!samples.empty(), "a median needs at least one sample.");
  std::sort(samples.begin(), samples.end());
  // The number of samples below the true median is binomial(n, 1/2); its normal
  // approximation is good to a rank from n = 6 on.
  const double n = static_cast<double>(samples.size());
  const double half_width = 1.96 * std::sqrt(n) / 2;
  const double last = n - 1;
  const auto lo = static_cast<size_t>(std::clamp(std::floor(n / 2 - half_width), 0.0, last));
  const auto hi = static_cast<size_t>(std::clamp(std::ceil(n / 2 + half_width), 0.0, last));
  return {middle_of_sorted(samples), samples[lo], samples[hi]};
}

}  // namespace overdrive::bench
