// Systems of equations, determinants, the inverse from a Cholesky factor, and products of reflections.
//
// The faults: the formulas of solve, det and slogdet use the LU factors of the call, and those of
// linalg_householder_product a result of it, as constants. The first derivative is right; derivatives of it (a
// gradient of the tangent, a tangent of the tangent) lack the terms through the factors. The forward formula of
// det gives a singular matrix no slope. The forward formula of cholesky_inverse is wrong in the first order
// already. The repairs are made of operators whose formulas are right to any order.
#include "forward_ad/layers/layers.h"
#include "forward_ad/rules/repair.h"
#include "forward_ad/rules/rule_support.h"

#include <tuple>

namespace overdrive::forward_ad::rules {
namespace {
using at::Tensor;
using c10::DispatchKeySet;

// LibTorch's kernel for a system calls the same two operators, so the value is the same.
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

// By traces (Faddeev and LeVerrier), without a division by a number that may be zero. For few rows; of many,
// rounding takes over.
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

std::vector<Tensor> try_determinant() {
  const Formula det = [](const Tensor& a) { return at::linalg_det(a); };
  std::vector<Tensor> numbers = second_order(det, row(1, {3, 3}).square());
  numbers.push_back(first_order(det, row(1, {2}).outer(row(1, {2}))).at(0));
  return numbers;
}

}  // namespace

void list_linear_algebra_repairs(std::vector<Repair>& list) {
  list.insert(
      list.end(),
      {
          {"second derivatives of solve",
           [](torch::Library& table) { table.impl("_linalg_solve_ex", TORCH_FN(solve)); },
           [] {
             return second_order([](const Tensor& a) { return at::linalg_solve(a, row(1, {2})); },
                                 row(1, {2, 2}).square());
           }},
          {"derivatives of det: second ones, and those of a singular matrix",
           [](torch::Library& table) { table.impl("_linalg_det", TORCH_FN(determinant)); }, try_determinant},
          {"second derivatives of slogdet",
           [](torch::Library& table) { table.impl("_linalg_slogdet", TORCH_FN(log_determinant)); },
           [] {
             const auto log_det = [](const Tensor& a) { return std::get<1>(at::linalg_slogdet(a)); };
             return second_order(log_det, row(1, {3, 3}).square());
           }},
          {"the tangent of cholesky_inverse",
           [](torch::Library& table) { table.impl("cholesky_inverse", TORCH_FN(cholesky_inverse)); },
           [] {
             return first_order([](const Tensor& l) { return at::cholesky_inverse(l); }, row(1, {2, 2}));
           }},
          {"second derivatives of householder_product",
           [](torch::Library& table) { table.impl("linalg_householder_product", TORCH_FN(reflections)); },
           [] {
             const auto product = [](const Tensor& t) {
               return at::linalg_householder_product(t, row(0.5, {2}));
             };
             return second_order(product, row(0.25, {3, 2}));
           }},
      });
}

}  // namespace overdrive::forward_ad::rules
