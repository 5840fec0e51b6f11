#include "test/forward_ad/op_table.h"

#include <ATen/ATen.h>

namespace overdrive::forward_ad::op_cases {

using at::Tensor;

namespace {

// Symmetric positive definite, for square x.
Tensor positive_definite(const Tensor& x) { return x.matmul(x.t()) + 2 * at::eye(x.size(0), at::kDouble); }

// Zero in the first column's first and last row where all of x are a half.
Tensor with_zeros(const Tensor& x) {
  Tensor zero = at::zeros(x.sizes(), at::kDouble);
  zero[0][0] = 0.5;
  zero[x.size(0) - 1][0] = 0.5;
  return (x - zero) * (1 + fixed(x.sizes()));
}

}  // namespace

std::vector<OpCase> reductions() {
  return {
      {"sum", kMatrix, [](const Tensor& x) { return x.pow(3).sum({1}); }},
      {"mean", kMatrix, [](const Tensor& x) { return x.exp().mean({0}); }},
      {"prod", kMatrix, [](const Tensor& x) { return x.prod(); }},
      {"prod_with_zeros", kMatrix, [](const Tensor& x) { return with_zeros(x).prod(); }, 0.5, 0.5},
      {"prod_along_a_dimension_with_zeros", Shape{3, 2}, [](const Tensor& x) { return with_zeros(x).prod(0); },
       0.5, 0.5},
      {"cumprod_with_zeros", Shape{3, 2}, [](const Tensor& x) { return with_zeros(x).cumprod(0); }, 0.5, 0.5},
      {"var", kMatrix, [](const Tensor& x) { return x.exp().var(1); }},
      {"std", kMatrix,
       [](const Tensor& x) {
         return (x * fixed({2, 3})).exp().std(1);
       }},
      {"logsumexp", kMatrix, [](const Tensor& x) { return x.logsumexp({1}); }},
      {"norm", kMatrix, [](const Tensor& x) { return x.norm(); }},
      {"vector_norm", kMatrix, [](const Tensor& x) { return at::linalg_vector_norm(x, 3); }},
      {"amax", kMatrix,
       [](const Tensor& x) {
         return (x * at::arange(1, 7, at::kDouble).view({2, 3})).exp().amax({1});
       }},
      {"cumsum", kFlat, [](const Tensor& x) { return x.pow(3).cumsum(0); }},
      {"cumprod", kFlat, [](const Tensor& x) { return x.cumprod(0); }},
  };
}

std::vector<OpCase> products() {
  return {
      {"matmul", kSquare, [](const Tensor& x) { return x.matmul(x.sin()).matmul(x); }},
      {"mv", kSquare, [](const Tensor& x) { return x.mv(x[0].exp()); }},
      {"dot", kFlat, [](const Tensor& x) { return x.dot(x.exp()); }},
      {"bmm", Shape{2, 2, 2}, [](const Tensor& x) { return x.bmm(x.exp()); }},
      {"addmm", kSquare, [](const Tensor& x) { return at::addmm(x, x, x.sin(), 0.5, 2); }},
      {"einsum", kSquare,
       [](const Tensor& x) {
         return at::einsum("ij,jk,ik->i", {x, x, x});
       }},
      {"linear", kMatrix, [](const Tensor& x) { return at::linear(x, x.exp(), x.sum(1)); }},
      {"outer", kFlat, [](const Tensor& x) { return at::outer(x, x.exp()); }},
      {"kron", Shape{2, 2}, [](const Tensor& x) { return at::kron(x, x.exp()); }},
  };
}

std::vector<OpCase> linear_algebra() {
  return {
      {"inverse", kSquare, [](const Tensor& x) { return positive_definite(x).inverse(); }},
      {"det", kSquare, [](const Tensor& x) { return positive_definite(x).det(); }},
      {"logdet", kSquare, [](const Tensor& x) { return at::logdet(positive_definite(x)); }},
      {"slogdet", kSquare,
       [](const Tensor& x) { return std::get<1>(at::linalg_slogdet(-positive_definite(x.flip(0)))); }},
      {"cholesky", Shape{2, 2}, [](const Tensor& x) { return at::linalg_cholesky(positive_definite(x)); }},
      {"solve", Shape{2, 2}, [](const Tensor& x) { return at::linalg_solve(positive_definite(x), x); }},
      {"solve_for_vectors", Shape{2, 2, 2},
       [](const Tensor& x) { return at::linalg_solve(x.matmul(x.mT()) + at::eye(2, at::kDouble), x[0]); }},
      {"solve_from_the_right", Shape{2, 2},
       [](const Tensor& x) { return at::linalg_solve(positive_definite(x).tril(), x, /*left=*/false); }},
      {"cholesky_inverse", Shape{2, 2},
       [](const Tensor& x) { return at::cholesky_inverse(at::linalg_cholesky(positive_definite(x))); }},
      {"cholesky_inverse_of_upper", Shape{2, 2},
       [](const Tensor& x) { return at::cholesky_inverse(positive_definite(x).triu(), /*upper=*/true); }},
      {"householder_product", Shape{3, 2},
       [](const Tensor& x) { return at::linalg_householder_product(x.exp(), x[0]); }},
      {"solve_triangular", Shape{2, 2},
       [](const Tensor& x) { return at::linalg_solve_triangular(positive_definite(x).tril(), x, false); }},
      {"eigvalsh", Shape{2, 2}, [](const Tensor& x) { return at::linalg_eigvalsh(positive_definite(x)); }},
      {"qr", Shape{2, 2}, [](const Tensor& x) { return std::get<1>(at::linalg_qr(positive_definite(x))); }},
      {"svdvals", Shape{2, 2},
       [](const Tensor& x) {
         return at::linalg_svdvals(positive_definite(x) * fixed({2, 2}));
       }},
      {"matrix_exp", Shape{2, 2}, [](const Tensor& x) { return at::linalg_matrix_exp(x); }},
      {"matrix_power", kSquare, [](const Tensor& x) { return at::linalg_matrix_power(x, 3); }},
  };
}

}  // namespace overdrive::forward_ad::op_cases
