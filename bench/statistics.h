// Medians and their intervals. Pure functions of the samples.
#pragma once

#include <vector>

namespace overdrive::bench {

// The middle value; the mean of the two middle ones when the count is even.
double median(std::vector<double> samples);

struct Interval {
  double middle = 0;
  double lo = 0;
  double hi = 0;
};

// The median with its 95 % interval by order statistics: no assumption about how timings are
// spread. With fewer than six samples the interval is the whole range.
Interval median_interval(std::vector<double> samples);

}  // namespace overdrive::bench
