// Samples of an image and rows of a table, for which LibTorch has no forward formula, as sums of gathered
// elements.
#include "forward_ad/rules/rule_support.h"

#include <tuple>
#include <vector>

namespace overdrive::forward_ad::rules {
namespace {
using at::Tensor;
using c10::DispatchKeySet;

// LibTorch's numbers.
enum class Interpolation : int64_t { kLinear, kNearest, kCubic };
enum class Padding : int64_t { kZeros, kBorder, kReflection };

// A place along one dimension of the image, and its weight in the sample.
struct Tap {
  Tensor place, weight;
};

// How one dimension of an image, of `size` elements, is looked at.
struct Axis {
  int64_t size;
  Interpolation interpolation;
  Padding padding;
  bool align_corners;

  std::vector<Tap> taps(const Tensor& coordinate) const {
    Tensor place = align_corners ? (coordinate + 1) / 2 * static_cast<double>(size - 1)
                                 : ((coordinate + 1) * static_cast<double>(size) - 1) / 2;
    if (interpolation == Interpolation::kCubic) return cubic(place);
    place = padded(place);
    if (interpolation == Interpolation::kNearest) return {{place.detach().round(), {}}};
    Tensor first = place.detach().floor(), part = place - first;
    return {{first, 1 - part}, {first + 1, part}};
  }

  Tensor is_inside(const Tensor& place) const {
    return (place >= 0).logical_and(place <= static_cast<double>(size - 1));
  }

 private:
  Tensor padded(const Tensor& place) const {
    if (padding == Padding::kZeros) return place;
    const auto last = static_cast<double>(size - 1);
    return (padding == Padding::kReflection ? reflected(place) : place).clamp(0, last);
  }

  Tensor reflected(const Tensor& place) const {
    const double low = align_corners ? 0 : -0.5;
    const double span = static_cast<double>(align_corners ? size - 1 : size);
    if (span == 0) return place * 0;
    Tensor distance = (place - low).abs(), flips = (distance.detach() / span).floor();
    Tensor rest = distance - flips * span;
    return at::where(flips.remainder(2) == 0, rest, span - rest) + low;
  }

  std::vector<Tap> cubic(const Tensor& place) const {
    constexpr double kA = -0.75;
    auto near = [](const Tensor& x) { return ((kA + 2) * x - (kA + 3)) * x * x + 1; };
    auto far = [](const Tensor& x) { return ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA; };
    Tensor first = place.detach().floor(), part = place - first;
    return {{padded(first - 1), far(part + 1)},
            {padded(first), near(part)},
            {padded(first + 1), near(1 - part)},
            {padded(first + 2), far(2 - part)}};
  }
};

// The elements of the image at the places, zero for those outside; `places` has one per dimension.
Tensor elements_at(const Tensor& image, const std::vector<Axis>& axes, const std::vector<Tensor>& places) {
  Tensor inside = axes[0].is_inside(places[0]), index = places[0];
  for (size_t i = 1; i < axes.size(); ++i) {
    inside = inside.logical_and(axes[i].is_inside(places[i]));
    index = index * axes[i].size + places[i];
  }
  // NaN becomes no place, too.
  index = at::where(inside, index, at::zeros({}, index.options())).to(at::kLong).unsqueeze(1);
  auto sizes = index.sizes().vec();
  sizes[1] = image.size(1);
  Tensor found = image.flatten(2).gather(2, index.expand(sizes).flatten(2)).view(sizes);
  return found * inside.unsqueeze(1);
}

// Adds up what comes from all combinations of taps of the dimensions from `axis` on.
Tensor sampled(const Tensor& image, const std::vector<Axis>& axes, const std::vector<std::vector<Tap>>& taps,
               std::vector<Tensor>& places) {
  const size_t axis = places.size();
  if (axis == axes.size()) return elements_at(image, axes, places);
  Tensor sum;
  for (const Tap& tap : taps[axis]) {
    places.push_back(tap.place);
    Tensor part = sampled(image, axes, taps, places);
    places.pop_back();
    if (tap.weight.defined()) part = part * tap.weight.unsqueeze(1);
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

template <typename Op>
Tensor grid_sampler(DispatchKeySet keys, const Tensor& image, const Tensor& grid, int64_t interpolation,
                    int64_t padding, bool align_corners) {
  if (!any_derivative(image, grid) || image.numel() == 0) {
    return Op::redispatch(keys & kBelow, image, grid, interpolation, padding, align_corners);
  }
  std::vector<Axis> axes;
  std::vector<std::vector<Tap>> taps;
  for (int64_t dim = 2; dim < image.dim(); ++dim) {
    axes.push_back({image.size(dim), static_cast<Interpolation>(interpolation), static_cast<Padding>(padding),
                    align_corners});
    taps.push_back(axes.back().taps(grid.select(-1, image.dim() - 1 - dim)));  // the grid has x, y, z
  }
  std::vector<Tensor> places;
  return sampled(image, axes, taps, places);
}

using Bags = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// LibTorch's numbers of what a bag is.
enum class BagOf : int64_t { kSum, kMean, kMax };

template <typename Op>
Bags embedding_bag(DispatchKeySet keys, const Tensor& weight, const Tensor& indices, const Tensor& offsets,
                   bool scale_grad_by_freq, int64_t mode, bool sparse, const std::optional<Tensor>& row_weights,
                   bool include_last_offset, int64_t padding_idx) {
  auto by_kernel = [&](DispatchKeySet below) {
    return Op::redispatch(below, weight, indices, offsets, scale_grad_by_freq, mode, sparse, row_weights,
                          include_last_offset, padding_idx);
  };
  if (!any_derivative(weight, row_weights)) return by_kernel(keys & kBelow);
  Bags result;
  {
    c10::AutoFwGradMode no_tangents(false);
    c10::AutoGradMode not_recorded(false);
    result = by_kernel(keys & kBelow);
  }
  auto& [output, bag_of_row, bag_size, max_indices] = result;
  if (static_cast<BagOf>(mode) == BagOf::kMax) {
    Tensor filled = (bag_size > 0).unsqueeze(-1);
    output = weight.gather(0, max_indices.to(at::kLong).clamp_min(0)) * filled;
    return result;
  }
  const int64_t bags = offsets.size(0) - (include_last_offset ? 1 : 0);
  Tensor bag = at::bucketize(at::arange(indices.size(0), offsets.options()), offsets.narrow(0, 0, bags),
                             /*out_int32=*/false, /*right=*/true) -
               1;
  Tensor counted = (indices != padding_idx).to(weight.scalar_type());
  Tensor factor = is_given(row_weights) ? counted * *row_weights : counted;
  Tensor rows = weight.index_select(0, indices) * factor.unsqueeze(-1);
  output = at::zeros({bags, weight.size(1)}, weight.options()).index_add(0, bag, rows);
  if (static_cast<BagOf>(mode) == BagOf::kMean) {
    Tensor counts = at::zeros({bags}, weight.options()).index_add(0, bag, counted).clamp_min(1);
    output = output / counts.unsqueeze(-1);
  }
  return result;
}

}  // namespace

void add_sampling_rules(torch::Library& table) {
  table.impl("grid_sampler_2d", TORCH_FN(grid_sampler<at::_ops::grid_sampler_2d>));
  table.impl("grid_sampler_3d", TORCH_FN(grid_sampler<at::_ops::grid_sampler_3d>));
  table.impl("_embedding_bag", TORCH_FN(embedding_bag<at::_ops::_embedding_bag>));
  table.impl("_embedding_bag_forward_only", TORCH_FN(embedding_bag<at::_ops::_embedding_bag_forward_only>));
}

}  // namespace overdrive::forward_ad::rules
