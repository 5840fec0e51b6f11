// Distances of all pairs of points: cdist and pdist.
//
// The fault: LibTorch's vmap of their backward operators reads the distances of the first row for all rows, and
// memory beyond them, so a vectorised Jacobian by rows is wrong. There is no trial, because it would read
// beyond memory. The forward formulas are missing, too. Where two points meet, the derivative is zero.
#include "forward_ad/layers/layers.h"
#include "forward_ad/rules/repair.h"
#include "forward_ad/rules/rule_support.h"

#include <cmath>

namespace overdrive::forward_ad::rules {
namespace {
using at::Tensor;
using c10::DispatchKeySet;

template <typename... Tensors>
bool any_batched(const Tensors&... tensors) {
  return (is_batched(tensors) || ...);
}

// Lengths of vectors along the last dimension, and what depends on them.
struct Lengths {
  Tensor differences, no_distance, lengths;
  double p;

  Lengths(const Tensor& all_differences, double order)
      : no_distance(all_differences.eq(0).all(-1, /*keepdim=*/true)), p(order) {
    differences = all_differences.masked_fill(no_distance, 1);
    lengths = at::linalg_vector_norm(differences, p, at::IntArrayRef{-1}, /*keepdim=*/true);
  }

  Tensor distances() const { return lengths.masked_fill(no_distance, 0).squeeze(-1); }

  // The gradient of the differences for that of the distances.
  Tensor pull_back(const Tensor& grad) const {
    return (grad.unsqueeze(-1) * slopes()).masked_fill(no_distance, 0);
  }

 private:
  Tensor slopes() const {
    if (p == 0) return at::zeros_like(differences);
    if (p == 1) return differences.sgn();
    if (p == 2) return differences / lengths;
    Tensor sizes = differences.abs();
    if (std::isinf(p)) return differences.sgn() * sizes.eq(lengths);
    // A number that is zero does not count, also where its power would be infinite.
    Tensor none = sizes.eq(0);
    Tensor powers = (sizes.masked_fill(none, 1) / lengths).pow(p - 1).masked_fill(none, 0);
    return differences.sgn() * powers;
  }
};

Lengths of_pairs(const Tensor& x1, const Tensor& x2, double p) {
  return {x1.unsqueeze(-2) - x2.unsqueeze(-3), p};
}

Tensor cdist(DispatchKeySet keys, const Tensor& x1, const Tensor& x2, double p, std::optional<int64_t> mode) {
  if (!any_derivative(x1, x2)) return at::_ops::_cdist_forward::redispatch(keys & kBelow, x1, x2, p, mode);
  return of_pairs(x1, x2, p).distances();
}

Tensor euclidean(DispatchKeySet keys, const Tensor& x1, const Tensor& x2) {
  if (!any_derivative(x1, x2)) return at::_ops::_euclidean_dist::redispatch(keys & kBelow, x1, x2);
  return of_pairs(x1, x2, 2).distances();
}

Tensor cdist_backward(DispatchKeySet keys, const Tensor& grad, const Tensor& x1, const Tensor& x2, double p,
                      const Tensor& distances) {
  if (!any_derivative(grad, x1, x2) && !any_batched(grad, x1, x2, distances)) {
    return at::_ops::_cdist_backward::redispatch(keys & kBelow, grad, x1, x2, p, distances);
  }
  return of_pairs(x1, x2, p).pull_back(grad).sum(-2);
}

struct Pairs {
  Tensor first, second;

  explicit Pairs(const Tensor& points) {
    Tensor pairs = at::triu_indices(points.size(0), points.size(0), 1, points.options().dtype(at::kLong));
    first = pairs.select(0, 0);
    second = pairs.select(0, 1);
  }
  Lengths of(const Tensor& points, double p) const {
    return {points.index_select(0, first) - points.index_select(0, second), p};
  }
};

Tensor pdist(DispatchKeySet keys, const Tensor& points, double p) {
  if (!any_derivative(points)) return at::_ops::_pdist_forward::redispatch(keys & kBelow, points, p);
  return Pairs(points).of(points, p).distances();
}

Tensor pdist_backward(DispatchKeySet keys, const Tensor& grad, const Tensor& points, double p,
                      const Tensor& distances) {
  if (!any_derivative(grad, points) && !any_batched(grad, points, distances)) {
    return at::_ops::_pdist_backward::redispatch(keys & kBelow, grad, points, p, distances);
  }
  const Pairs pairs(points);
  Tensor of_differences = pairs.of(points, p).pull_back(grad), none = at::zeros_like(points);
  return none.index_add(0, pairs.first, of_differences).index_add(0, pairs.second, of_differences, -1);
}

void add_distances(torch::Library& table) {
  table.impl("_cdist_forward", TORCH_FN(cdist));
  table.impl("_euclidean_dist", TORCH_FN(euclidean));
  table.impl("_cdist_backward", TORCH_FN(cdist_backward));
  table.impl("_pdist_forward", TORCH_FN(pdist));
  table.impl("_pdist_backward", TORCH_FN(pdist_backward));
}

}  // namespace

void list_distance_repairs(std::vector<Repair>& list) {
  list.push_back({"vectorised gradients of cdist and pdist", add_distances, nullptr});
}

}  // namespace overdrive::forward_ad::rules
