#include "test/forward_ad/op_table.h"

#include <torch/torch.h>

namespace overdrive::forward_ad {

namespace {

namespace F = torch::nn::functional;
using at::Tensor;
using Shape = std::vector<int64_t>;

// Numbers that are the same in each call, so that a function is a function.
Tensor fixed(at::IntArrayRef sizes) {
  int64_t count = c10::multiply_integers(sizes);
  return at::sin(at::arange(1, count + 1, at::kDouble)).view(sizes);
}

// Made of operators: at::tensor() writes through a pointer, which nothing made inside a level has.
Tensor indices(std::initializer_list<int64_t> values) {
  std::vector<Tensor> numbers;
  for (int64_t value : values) numbers.push_back(at::full({}, value, at::kLong));
  return at::stack(numbers);
}

// Symmetric positive definite, for square x.
Tensor positive_definite(const Tensor& x) { return x.matmul(x.t()) + 2 * at::eye(x.size(0), at::kDouble); }

void add(std::vector<OpCase>& table, std::vector<OpCase> more) {
  for (auto& op : more) table.push_back(std::move(op));
}

// LibTorch's own faults, the same in Python's torch.func.
const char* const kOfFactors =
    "the forward formula uses the LU factors that the call made as if they were constants, so its own "
    "derivative is wrong";
const char* const kOfStatistics =
    "the forward formula uses the mean and deviation that the call made as if they were constants, so its own "
    "derivative "
    "is wrong";

const Shape kFlat{4}, kMatrix{2, 3}, kSquare{3, 3};

std::vector<OpCase> elementwise() {
  return {
      {"sin", kFlat, [](const Tensor& x) { return x.sin(); }},
      {"cos", kFlat, [](const Tensor& x) { return x.cos(); }},
      {"tan", kFlat, [](const Tensor& x) { return x.tan(); }},
      {"asin", kFlat, [](const Tensor& x) { return x.asin(); }, -0.6, 0.6},
      {"acos", kFlat, [](const Tensor& x) { return x.acos(); }, -0.6, 0.6},
      {"atan", kFlat, [](const Tensor& x) { return x.atan(); }},
      {"sinh", kFlat, [](const Tensor& x) { return x.sinh(); }},
      {"cosh", kFlat, [](const Tensor& x) { return x.cosh(); }},
      {"tanh", kFlat, [](const Tensor& x) { return x.tanh(); }},
      {"asinh", kFlat, [](const Tensor& x) { return x.asinh(); }},
      {"acosh", kFlat, [](const Tensor& x) { return x.acosh(); }, 1.5, 2.5},
      {"atanh", kFlat, [](const Tensor& x) { return x.atanh(); }, -0.6, 0.6},
      {"exp", kFlat, [](const Tensor& x) { return x.exp(); }},
      {"expm1", kFlat, [](const Tensor& x) { return x.expm1(); }},
      {"log", kFlat, [](const Tensor& x) { return x.log(); }, 0.5, 1.5},
      {"log1p", kFlat, [](const Tensor& x) { return x.log1p(); }},
      {"log2", kFlat, [](const Tensor& x) { return x.log2(); }, 0.5, 1.5},
      {"sqrt", kFlat, [](const Tensor& x) { return x.sqrt(); }, 0.5, 1.5},
      {"rsqrt", kFlat, [](const Tensor& x) { return x.rsqrt(); }, 0.5, 1.5},
      {"reciprocal", kFlat, [](const Tensor& x) { return x.reciprocal(); }, 0.5, 1.5},
      {"pow_scalar", kFlat, [](const Tensor& x) { return x.pow(4); }},
      {"pow_tensor", kFlat, [](const Tensor& x) { return at::pow(x, x + 1); }},
      {"sigmoid", kFlat, [](const Tensor& x) { return x.sigmoid(); }},
      {"log_sigmoid", kFlat, [](const Tensor& x) { return at::log_sigmoid(x); }},
      {"softplus", kFlat, [](const Tensor& x) { return at::softplus(x); }},
      {"gelu", kFlat, [](const Tensor& x) { return at::gelu(x); }},
      {"gelu_tanh", kFlat, [](const Tensor& x) { return at::gelu(x, "tanh"); }},
      {"silu", kFlat, [](const Tensor& x) { return at::silu(x); }},
      {"mish", kFlat, [](const Tensor& x) { return at::mish(x); }},
      {"elu", kFlat, [](const Tensor& x) { return at::elu(-x); }},
      {"relu", kFlat, [](const Tensor& x) { return at::relu(x * x - 0.05); }},
      {"erf", kFlat, [](const Tensor& x) { return x.erf(); }},
      {"erfinv", kFlat, [](const Tensor& x) { return x.erfinv(); }, -0.6, 0.6},
      {"lgamma", kFlat, [](const Tensor& x) { return x.lgamma(); }, 1.5, 2.5},
      {"mul_div", kFlat, [](const Tensor& x) { return x * x.sin() / (x + 1); }},
      {"atan2", kFlat, [](const Tensor& x) { return at::atan2(x, x * x + 1); }},
      {"hypot", kFlat, [](const Tensor& x) { return at::hypot(x, x * x + 1); }},
      {"xlogy", kFlat, [](const Tensor& x) { return at::xlogy(x, x + 1); }},
      {"where", kFlat, [](const Tensor& x) { return at::where(fixed({4}) > 0, x.exp(), x.sin()); }},
      {"clamp", kFlat, [](const Tensor& x) { return x.pow(3).clamp(-1, 0.9); }},
      {"lerp", kFlat, [](const Tensor& x) { return at::lerp(x, x.exp(), x * x); }},
      {"addcmul", kFlat, [](const Tensor& x) { return at::addcmul(x, x.sin(), x.exp(), 0.5); }},
      {"addcdiv", kFlat, [](const Tensor& x) { return at::addcdiv(x, x.sin(), x.exp(), 0.5); }},
      {"abs", kFlat, [](const Tensor& x) { return (-x.pow(3)).abs(); }},
      {"maximum", kFlat, [](const Tensor& x) { return at::maximum(x.pow(3), x.exp()); }},
  };
}

std::vector<OpCase> reductions() {
  return {
      {"sum", kMatrix, [](const Tensor& x) { return x.pow(3).sum({1}); }},
      {"mean", kMatrix, [](const Tensor& x) { return x.exp().mean({0}); }},
      {"prod", kMatrix, [](const Tensor& x) { return x.prod(); }},
      {"var", kMatrix, [](const Tensor& x) { return x.exp().var(1); }},
      {"std", kMatrix,
       [](const Tensor& x) {
         return (x * fixed({2, 3})).exp().std(1);
       }},
      {"logsumexp", kMatrix, [](const Tensor& x) { return x.logsumexp({1}); }},
      {"norm", kMatrix, [](const Tensor& x) { return x.norm(); }, 0.2, 0.8, 0, 5,
       "the forward formula gives a tangent of shape [1, 1] for a number, which is an error"},
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
      {"det", kSquare, [](const Tensor& x) { return positive_definite(x).det(); }, 0.2, 0.8, 1, 5, kOfFactors},
      {"logdet", kSquare, [](const Tensor& x) { return at::logdet(positive_definite(x)); }, 0.2, 0.8, 1, 5,
       kOfFactors},
      {"cholesky", Shape{2, 2}, [](const Tensor& x) { return at::linalg_cholesky(positive_definite(x)); }},
      {"solve", Shape{2, 2}, [](const Tensor& x) { return at::linalg_solve(positive_definite(x), x); }, 0.2,
       0.8, 1, 5, kOfFactors},
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

std::vector<OpCase> indexing() {
  return {
      {"index_select", kFlat,
       [](const Tensor& x) {
         return x.exp().index_select(0, indices({2, 0, 2}));
       }},
      {"gather", kFlat,
       [](const Tensor& x) {
         return x.exp().gather(0, indices({3, 3, 1}));
       }},
      {"index", kSquare,
       [](const Tensor& x) {
         return x.exp().index({indices({0, 2}), indices({1, 1})});
       }},
      {"index_put", kFlat,
       [](const Tensor& x) {
         return x.index_put({indices({1, 3})}, x.exp().narrow(0, 0, 2));
       }},
      {"masked_fill", kFlat, [](const Tensor& x) { return x.exp().masked_fill(fixed({4}) > 0, 2.0); }},
      {"scatter_add", kFlat,
       [](const Tensor& x) {
         return x.scatter_add(0, indices({0, 0, 2, 1}), x.exp());
       }},
      {"take", kSquare,
       [](const Tensor& x) {
         return x.exp().take(indices({8, 1, 1}));
       }},
      {"cat", kFlat,
       [](const Tensor& x) {
         return at::cat({x.sin(), x.exp()});
       }},
      {"stack", kFlat,
       [](const Tensor& x) {
         return at::stack({x.sin(), x.exp(), x});
       }},
      {"flip_roll", kFlat, [](const Tensor& x) { return x.exp().flip({0}) * x.roll(1, 0); }},
      {"sort", kFlat, [](const Tensor& x) { return std::get<0>((x * fixed({4})).exp().sort()); }},
      {"embedding", kMatrix,
       [](const Tensor& x) {
         return at::embedding(x.exp(), indices({1, 0, 1}));
       }},
  };
}

std::vector<OpCase> networks() {
  return {
      {"conv1d", Shape{1, 2, 5},
       [](const Tensor& x) { return at::conv1d(x.exp(), x.narrow(2, 0, 3).sin(), {}, 1, 1); }},
      {"conv2d", Shape{1, 1, 4, 4},
       [](const Tensor& x) { return at::conv2d(x.exp(), x.narrow(2, 0, 2).narrow(3, 1, 2)); }},
      {"conv_transpose1d", Shape{1, 2, 3},
       [](const Tensor& x) {
         return at::conv_transpose1d(x.exp(), fixed({2, 1, 2}));
       }},
      {"avg_pool2d", Shape{1, 1, 4, 4}, [](const Tensor& x) { return at::avg_pool2d(x.exp(), 2); }},
      {"max_pool2d", Shape{1, 1, 4, 4}, [](const Tensor& x) { return at::max_pool2d(x.exp(), 2); }},
      {"layer_norm", kMatrix,
       [](const Tensor& x) { return at::layer_norm(x.exp(), {3}, fixed({3}), fixed({3})); }, 0.2, 0.8, 1, 5,
       kOfStatistics},
      {"batch_norm", Shape{4, 2},
       [](const Tensor& x) {
         return at::batch_norm(x.exp(), fixed({2}), fixed({2}), {}, {}, true, 0.1, 1e-3, false);
       },
       0.2, 0.8, 1, 5, kOfStatistics},
      {"group_norm", Shape{1, 4, 2},
       [](const Tensor& x) { return at::group_norm(x.exp(), 2, fixed({4}), fixed({4})); }},
      {"softmax", kMatrix, [](const Tensor& x) { return x.exp().softmax(1); }},
      {"log_softmax", kMatrix, [](const Tensor& x) { return x.exp().log_softmax(1); }},
      {"cross_entropy", kMatrix,
       [](const Tensor& x) {
         return at::cross_entropy_loss(x.exp(), indices({2, 0}));
       }},
      {"mse_loss", kFlat, [](const Tensor& x) { return at::mse_loss(x.exp(), x.sin()); }},
      {"binary_cross_entropy_with_logits", kFlat,
       [](const Tensor& x) { return at::binary_cross_entropy_with_logits(x.exp(), fixed({4}).sigmoid()); }},
      {"attention", Shape{1, 1, 3, 2},
       [](const Tensor& x) { return at::softmax(x.matmul(x.exp().transpose(2, 3)), -1).matmul(x); }},
      {"tanh_mlp", kMatrix,
       [](const Tensor& x) {
         return x.matmul(fixed({3, 4})).tanh().matmul(fixed({4, 2})).tanh();
       }},
  };
}

std::vector<OpCase> views_and_in_place() {
  return {
      {"view", kMatrix,
       [](const Tensor& x) {
         return x.view({3, 2}).exp() * x.view({3, 2});
       }},
      {"permute", kMatrix,
       [](const Tensor& x) {
         return x.permute({1, 0}).exp() * x.t();
       }},
      {"expand", kFlat,
       [](const Tensor& x) {
         return x.unsqueeze(0).expand({2, 4}) * x.exp();
       }},
      {"narrow", kFlat, [](const Tensor& x) { return x.narrow(0, 1, 2) * x.narrow(0, 2, 2).exp(); }},
      {"unfold", kFlat, [](const Tensor& x) { return x.unfold(0, 2, 1).exp() * x[0]; }},
      {"diagonal", kSquare, [](const Tensor& x) { return x.diagonal() * x.exp().diagonal(1).sum(); }},
      {"as_strided", kMatrix,
       [](const Tensor& x) {
         return x.as_strided({2, 2}, {2, 1}, 1).exp() * x[0][0];
       }},
      {"chunk", kFlat, [](const Tensor& x) { return x.chunk(2)[0] * x.chunk(2)[1].exp(); }},
      {"mul_in_place", kFlat,
       [](const Tensor& x) {
         Tensor y = x.sin();
         y.mul_(x).add_(x, 2).mul_(x);
         return y;
       }},
      {"mul_in_place_by_itself", kFlat,
       [](const Tensor& x) {
         Tensor y = x.exp();
         y.mul_(y);
         return y;
       },
       0.2, 0.8, 0, 0,
       "LibTorch's formula for mul_ reads the tangent of `other` after it has written that of `self`"},
      {"sigmoid_in_place", kFlat,
       [](const Tensor& x) {
         Tensor y = x * x;
         y.sigmoid_();
         return y - x;
       }},
      {"copy_into_a_view", kMatrix,
       [](const Tensor& x) {
         Tensor y = at::zeros({2, 3}, at::kDouble);
         y[0].copy_(x[1].exp());
         y.select(1, 2).add_(x.select(1, 0).sin());
         return y * x;
       }},
      {"in_place_through_a_view", kMatrix,
       [](const Tensor& x) {
         Tensor y = x.sin();
         y.t()[1].mul_(x.t()[0]);
         return y * y;
       }},
      {"index_add_in_place", kFlat,
       [](const Tensor& x) {
         Tensor y = x.sin();
         y.index_add_(0, indices({1, 1}), x.narrow(0, 0, 2).sin());
         return y * x;
       }},
  };
}

}  // namespace

std::vector<OpCase> op_table() {
  std::vector<OpCase> table = elementwise();
  add(table, reductions());
  add(table, products());
  add(table, linear_algebra());
  add(table, indexing());
  add(table, networks());
  add(table, views_and_in_place());
  return table;
}

}  // namespace overdrive::forward_ad
