// Systems of equations, determinants and products of reflections. LibTorch's formulas use the
// factors that the call made, or a result of it, as if they were constants, so their own
// derivatives are silently wrong, in forward mode and where reverse mode records a tangent. Here
// they are made of operators whose formulas are right to any order.
#include "forward_ad/layers/layers.h"
#include "forward_ad/rules/rule_support.h"

#include <ATen/ops/_linalg_det_ops.h>
#include <ATen/ops/_linalg_slogdet_ops.h>
#include <ATen/ops/_linalg_solve_ex_ops.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cholesky_inverse_ops.h>
#include <ATen/ops/cholesky_solve.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_householder_product_ops.h>
#include <ATen/ops/linalg_lu_factor_ex.h>
#include <ATen/ops/linalg_lu_solve.h>

#include <tuple>

namespace overdrive::forward_ad::rules {

namespace {

using at::Tensor;
using c10::DispatchKeySet;

// Both are what LibTorch's kernel for a system calls, so the value is the same.
std::tuple<Tensor, Tensor, Tensor, Tensor> solve(DispatchKeySet keys, const Tensor& a, const Tensor& b,
                                                 bool left, bool check_errors) {
  const bool is_vector = b.dim() == 1 || (a.dim() - 1 == b.dim() && b.sizes() == a.sizes().slice(0, b.dim()));
  if (!any_derivative(a, b) || a.dim() < 2 || (is_vector && !left)) {
    return at::_ops::_linalg_solve_ex::redispatch(keys & kBelow, a, b, left, check_errors);
  }
  auto [factors, pivots, info] = at::linalg_lu_factor_ex(a, /*pivot=*/true, check_errors);
  Tensor solution = at::linalg_lu_solve(factors, pivots, is_vector ? b.unsqueeze(-1) : b, left);
  return {is_vector ? solution.squeeze(-1) : solution, factors, pivots, info};
}

struct TriangularFactors {
  Tensor factors, pivots, diagonal;

  static TriangularFactors of(const Tensor& matrix) {
    auto [factors, pivots, info] = at::linalg_lu_factor_ex(matrix);
    return {factors, pivots, factors.diagonal(0, -2, -1)};
  }

  // The factors of a singular matrix have no derivative.
  bool are_regular() const {
    BelowLayer below_all(0);
    return innermost_of(diagonal).ne(0).all().item<bool>();
  }

  // -1 for an odd number of rows that were exchanged.
  Tensor parity() const {
    Tensor rows = at::arange(1, pivots.size(-1) + 1, pivots.options());
    return (1 - 2 * pivots.ne(rows).sum(-1).remainder(2)).to(factors.scalar_type());
  }
};

// By traces (Faddeev and LeVerrier), without a division by what may be zero: LibTorch's forward
// formula gives a singular matrix no slope. For few rows; of many, rounding takes over.
Tensor determinant_by_traces(const Tensor& matrix) {
  const int64_t rows = matrix.size(-1);
  Tensor unit = at::eye(rows, matrix.options()), auxiliary = unit, coefficient;
  for (int64_t k = 1; k <= rows; ++k) {
    Tensor product = matrix.matmul(auxiliary);
    coefficient = product.diagonal(0, -2, -1).sum(-1) / -k;
    auxiliary = product + coefficient.unsqueeze(-1).unsqueeze(-1) * unit;
  }
  return rows % 2 == 0 ? coefficient : -coefficient;
}

std::tuple<Tensor, Tensor, Tensor> determinant(DispatchKeySet keys, const Tensor& matrix) {
  if (!any_derivative(matrix)) return at::_ops::_linalg_det::redispatch(keys & kBelow, matrix);
  auto lu = TriangularFactors::of(matrix);
  Tensor value = lu.are_regular() ? lu.diagonal.prod(-1) * lu.parity() : determinant_by_traces(matrix);
  return {value, lu.factors, lu.pivots};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> log_determinant(DispatchKeySet keys, const Tensor& matrix) {
  if (any_derivative(matrix)) {
    auto lu = TriangularFactors::of(matrix);
    if (lu.are_regular()) {
      return {lu.diagonal.sgn().prod(-1) * lu.parity(), lu.diagonal.abs().log().sum(-1), lu.factors, lu.pivots};
    }
  }
  return at::_ops::_linalg_slogdet::redispatch(keys & kBelow, matrix);
}

// LibTorch's forward formula is wrong in the first order already.
Tensor cholesky_inverse(DispatchKeySet keys, const Tensor& factor, bool upper) {
  if (!any_derivative(factor)) return at::_ops::cholesky_inverse::redispatch(keys & kBelow, factor, upper);
  Tensor triangle = upper ? factor.triu() : factor.tril();
  return at::cholesky_solve(at::eye(factor.size(-1), factor.options()).expand(factor.sizes()), triangle, upper);
}

// The first columns of H1 H2 ... Hk, where H = 1 - tau v v^H.
Tensor reflections(DispatchKeySet keys, const Tensor& input, const Tensor& tau) {
  if (!any_derivative(input, tau)) {
    return at::_ops::linalg_householder_product::redispatch(keys & kBelow, input, tau);
  }
  const int64_t rows = input.size(-2), count = tau.size(-1);
  Tensor vectors = input.narrow(-1, 0, count).tril(-1) + at::eye(rows, input.options()).narrow(-1, 0, count);
  Tensor product = at::eye(rows, input.options()).narrow(-1, 0, input.size(-1)).expand(input.sizes());
  for (int64_t i = count - 1; i >= 0; --i) {
    Tensor vector = vectors.narrow(-1, i, 1);
    product = product - tau.narrow(-1, i, 1).unsqueeze(-1) * vector.matmul(vector.mH().matmul(product));
  }
  return product;
}

}  // namespace

void add_linear_algebra_rules(torch::Library& table) {
  table.impl("_linalg_solve_ex", TORCH_FN(solve));
  table.impl("_linalg_det", TORCH_FN(determinant));
  table.impl("_linalg_slogdet", TORCH_FN(log_determinant));
  table.impl("cholesky_inverse", TORCH_FN(cholesky_inverse));
  table.impl("linalg_householder_product", TORCH_FN(reflections));
}

}  // namespace overdrive::forward_ad::rules
