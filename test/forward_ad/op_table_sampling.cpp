#include "test/forward_ad/op_table.h"

#include <ATen/ATen.h>

#include <limits>

namespace overdrive::forward_ad::op_cases {

using at::Tensor;

namespace {

const char* const kOnlyOnce = "the backward operator has no derivative in reverse mode";

enum Interpolation : int64_t { kLinear, kNearest, kCubic };
enum Padding : int64_t { kZeros, kBorder, kReflection };
enum BagOf : int64_t { kSum, kMean, kMax };

// The image and where it is looked at; a part is outside.
OpCase grid_sample(const char* name, int64_t interpolation, int64_t padding, bool align_corners) {
  return {name,
          Shape{1, 1, 3, 2},
          [=](const Tensor& x) {
            Tensor grid = x.view({1, 1, 3, 2}) * 3.1 - 1.4;
            return at::grid_sampler(x.exp().view({1, 2, 1, 3}), grid, interpolation, padding, align_corners);
          },
          0.2,
          0.8,
          5,
          1,
          kOnlyOnce};
}

Tensor bags(const Tensor& weight, int64_t of, const std::optional<Tensor>& row_weights = {}) {
  return std::get<0>(at::embedding_bag(weight, indices({1, 0, 1, 2, 2}), indices({0, 3, 3}), false, of, false,
                                       row_weights, false, /*padding_idx=*/0));
}

}  // namespace

std::vector<OpCase> sampling() {
  return {
      grid_sample("grid_sample", kLinear, kZeros, false),
      grid_sample("grid_sample_aligned", kLinear, kBorder, true),
      grid_sample("grid_sample_reflected", kLinear, kReflection, false),
      grid_sample("grid_sample_reflected_aligned", kLinear, kReflection, true),
      grid_sample("grid_sample_nearest", kNearest, kZeros, false),
      grid_sample("grid_sample_nearest_border", kNearest, kBorder, true),
      grid_sample("grid_sample_cubic", kCubic, kZeros, false),
      grid_sample("grid_sample_cubic_reflected", kCubic, kReflection, true),
      {"grid_sample_in_space", Shape{1, 2, 2, 1, 3},
       [](const Tensor& x) { return at::grid_sampler(x.exp(), x * 2 - 0.9, kLinear, kZeros, false); }, 0.2, 0.8,
       5, 1, kOnlyOnce},
      {"embedding_bag_sum", kMatrix,
       [](const Tensor& x) {
         return bags(x.exp().view({3, 2}), kSum, x.view({6}).narrow(0, 0, 5).sin());
       },
       0.2, 0.8, 5, 1, kOnlyOnce},
      {"embedding_bag_mean", Shape{3, 2}, [](const Tensor& x) { return bags(x.exp(), kMean); }},
      {"embedding_bag_max", Shape{3, 2}, [](const Tensor& x) { return bags(x.exp(), kMax); }},
      {"cdist", kMatrix, [](const Tensor& x) { return at::cdist(x, x.exp()); }, 0.2, 0.8, 5, 1, kOnlyOnce},
      {"cdist_of_order_3", kMatrix, [](const Tensor& x) { return at::cdist(x, x.exp(), 3); }, 0.2, 0.8, 5, 1,
       kOnlyOnce},
      {"cdist_of_order_1", kMatrix, [](const Tensor& x) { return at::cdist(x, x.exp(), 1); }, 0.2, 0.8, 5, 1,
       kOnlyOnce},
      {"cdist_of_the_largest", kMatrix,
       [](const Tensor& x) { return at::cdist(x, x.exp(), std::numeric_limits<double>::infinity()); }, 0.2, 0.8,
       5, 1, kOnlyOnce},
      {"cdist_by_matrices", kMatrix, [](const Tensor& x) { return at::cdist(x, x.exp(), 2, 1); }},
      {"cdist_with_itself", kMatrix, [](const Tensor& x) { return at::cdist(x, x * 1); }, 0.2, 0.8, 5, 1,
       kOnlyOnce},
      {"pdist", Shape{3, 2}, [](const Tensor& x) { return at::pdist(x.exp()); }, 0.2, 0.8, 5, 1, kOnlyOnce},
      {"pdist_of_order_3", Shape{3, 2}, [](const Tensor& x) { return at::pdist(x.exp(), 3); }, 0.2, 0.8, 5, 1,
       kOnlyOnce},
  };
}

}  // namespace overdrive::forward_ad::op_cases
