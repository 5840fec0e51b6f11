#include "test/parity/fuzz/ops.h"

#include "test/parity/fuzz/leaf.h"
#include "test/parity/fuzz/op_row.h"

#include <algorithm>

namespace overdrive::fuzz {
namespace {

const std::vector<Op> kBuiltIn = {
    // One operand.
    ONE("neg", 1, kMath, at::neg(a)),
    ONE("exp", 1, kMath, at::exp(a.tanh())),
    ONE("sin", 1, kMath, at::sin(a)),
    ONE("cos", 1, kMath, at::cos(a)),
    ONE("tanh", 1, kMath, at::tanh(a)),
    ONE("sigmoid", 1, kMath, at::sigmoid(a)),
    ONE("relu", 1, kMath, at::relu(a)),
    ONE("abs", 1, kMath, at::abs(a)),
    ONE("sqrt", 1, kMath, at::sqrt(a.abs() + 1)),
    ONE("square", 1, kMath, at::square(a)),
    ONE("pow", 1, kMath, at::pow(a, k % 4)),
    ONE("reciprocal", 1, kMath, at::reciprocal(a* a + 1)),
    ONE("log1p", 1, kMath, at::log1p(a.abs())),
    ONE("erf", 1, kMath, at::erf(a)),
    ONE("atan", 1, kMath, at::atan(a)),
    ONE("asin", 1, kMath, at::asin(a)),  // NaN beyond 1
    ONE("clamp", 1, kMath, at::clamp(a, -1, 1)),
    ONE("leaky_relu", 1, kMath, at::leaky_relu(a)),
    ONE("gelu", 1, kMath, at::gelu(a)),
    ONE("silu", 1, kMath, at::silu(a)),
    ONE("elu", 1, kMath, at::elu(a)),
    ONE("softplus", 1, kMath, at::softplus(a)),
    ONE("softmax", 1, kMath, at::softmax(a, dim_of(a, k))),
    ONE("log_softmax", 1, kMath, at::log_softmax(a, dim_of(a, k))),
    ONE("sum", 1, kMath, at::sum(a)),
    ONE("mean", 1, kMath, at::mean(a)),
    ONE("sum_dim", 1, kMath, at::sum(a, dim_of(a, k), k % 2 == 0)),
    ONE("cumsum", 1, kMath, at::cumsum(a, dim_of(a, k))),
    ONE("prod", 1, kMath, at::prod(a)),
    ONE("logsumexp", 1, kMath, at::logsumexp(a, dim_of(a, k), true)),
    ONE("var", 1, kMath, at::var(a, at::IntArrayRef(dim_of(a, k)))),
    ONE("norm", 1, kMath, at::norm(a)),
    ONE("amax", 1, kMath, at::amax(a, dim_of(a, k))),
    ONE("max_dim", 1, kMath, std::get<0>(at::max(a, dim_of(a, k)))),
    ONE("sort", 1, kMath, std::get<0>(at::sort(a, dim_of(a, k)))),
    ONE("topk", 1, kMath, std::get<0>(at::topk(a, 1, dim_of(a, k)))),
    ONE("flip", 1, kMath, at::flip(a, dim_of(a, k))),
    ONE("roll", 1, kMath, at::roll(a, k, dim_of(a, k))),
    ONE("tril", 1, kMath, at::tril(a)),
    ONE("clone", 1, kMath, a.clone()),
    ONE("contiguous", 1, kMath, a.contiguous()),
    ONE("to_double", 1, kMath, a.to(at::kDouble)),
    ONE("to_float", 1, kMath, a.to(at::kFloat)),
    ONE("pad", 1, kMath, at::constant_pad_nd(a, {1, 0}, 0.5)),
    ONE("repeat", 1, kMath, at::repeat_interleave(a, 2, dim_of(a, k))),
    ONE("index_select", 1, kMath, at::index_select(a, dim_of(a, k), index_for(a, dim_of(a, k), k))),
    ONE("dropout", 1, kMath, at::dropout(a, 0.4, true)),
    ONE("layer_norm", 1, kMath, at::layer_norm(a, a.sizes())),
    ONE("mul_scalar", 1, kMath, a * (0.3 + static_cast<double>(k))),
    ONE("add_scalar", 1, kMath, a + static_cast<double>(k)),
    ONE("diag_embed", 1, kMath, at::diag_embed(a)),
    ONE("avg_pool2d", 1, kMath, at::avg_pool2d(a, {1, 2})),
    ONE("max_pool2d", 1, kMath, at::max_pool2d(a, {1, 2})),
    // More operands.
    ONE("add", 2, kMath, a + b),
    ONE("sub", 2, kMath, a - b),
    ONE("mul", 2, kMath, a* b),
    ONE("div", 2, kMath, a / (b * b + 1)),
    ONE("mm", 2, kMath, at::mm(column(a), row(b))),
    ONE("matmul", 2, kMath, at::matmul(column(a), row(b))),
    ONE("bmm", 2, kMath, at::bmm(column(a).unsqueeze(0), row(b).unsqueeze(0))),
    ONE("linear", 2, kMath, at::linear(column(a), row(b))),
    ONE("einsum", 2, kMath, at::einsum("...i,...i->...", {a, b})),
    ONE("outer", 2, kMath, at::outer(a.flatten().narrow(0, 0, 1), b.flatten())),
    ONE("maximum", 2, kMath, at::maximum(a, b)),
    ONE("minimum", 2, kMath, at::minimum(a, b)),
    ONE("atan2", 2, kMath, at::atan2(a, b)),
    ONE("where", 2, kMath, at::where(a > b, a, b)),
    ONE("masked_fill", 2, kMath, at::masked_fill(a, b > 0, 0.25)),
    ONE("cat", 2, kMath, at::cat({a, b}, dim_of(a, k))),
    ONE("stack", 2, kMath, at::stack({a, b}, dim_of(a, k))),
    ONE("stack_twice", 1, kMath, at::stack({a, a}, dim_of(a, k))),
    ONE("mse_loss", 2, kMath, at::mse_loss(a, b)),
    ONE("smooth_l1", 2, kMath, at::smooth_l1_loss(a, b)),
    ONE("gather", 2, kMath, at::gather(a, dim_of(a, k), at::zeros_like(b, at::kLong))),
    ONE("index_put", 2, kMath, at::index_put(a, {at::zeros({2}, at::kLong)}, b, true)),
    ONE("index_add", 2, kMath, at::index_add(a, 0, at::zeros({b.size(0)}, at::kLong), b)),
    ONE("embedding", 1, kMath, at::embedding(a, index_for(a, 0, k))),
    ONE("addmm", 3, kMath, at::addmm(row(a), column(b), row(c))),
    ONE("addcmul", 3, kMath, at::addcmul(a, b, c, 0.5)),
    ONE("lerp", 3, kMath, at::lerp(a, b, c)),
    TWO("var_mean", 1, kMath,
        [](auto pair) -> variable_list {
          return {std::get<0>(pair), std::get<1>(pair)};
        }(at::var_mean(a, at::IntArrayRef(dim_of(a, k))))),
    // Views.
    ONE("transpose", 1, kView, a.transpose(0, -1)),
    ONE("select", 1, kView, a.select(dim_of(a, k), 0)),
    ONE("narrow", 1, kView, a.narrow(dim_of(a, k), 0, 1)),
    ONE("slice", 1, kView, a.slice(dim_of(a, k), 0, c10::nullopt, 2)),
    ONE("unsqueeze", 1, kView, a.unsqueeze(0)),
    ONE("squeeze", 1, kView, a.squeeze()),
    ONE("view", 1, kView, a.view(-1)),
    ONE("reshape", 1, kView, a.reshape({1, -1})),
    ONE("expand", 1, kView, a.unsqueeze(0).expand_as(at::stack({a, a}))),
    ONE("diagonal", 1, kView, a.diagonal()),
    ONE("unfold", 1, kView, a.unfold(dim_of(a, k), 1, 1)),
    ONE("alias", 1, kView, at::alias(a)),
    ONE("as_strided", 1, kView, a.as_strided(a.sizes(), a.strides())),
    TWO("chunk", 1, kView, a.chunk(2, dim_of(a, k))),
    TWO("unbind", 1, kView, a.unbind(dim_of(a, k))),
    // In place.
    ONE("mul_", 2, kInPlace, a.mul_(b)),
    ONE("add_", 2, kInPlace, a.add_(b)),
    ONE("sub_", 2, kInPlace, a.sub_(b, 0.5)),
    ONE("div_", 2, kInPlace, a.div_(b.detach() * b.detach() + 1)),
    ONE("copy_", 2, kInPlace, a.copy_(b)),
    ONE("addcmul_", 3, kInPlace, a.addcmul_(b, c)),
    ONE("mul_scalar_", 1, kInPlace, a.mul_(0.5 + static_cast<double>(k))),
    ONE("sin_", 1, kInPlace, a.sin_()),
    ONE("tanh_", 1, kInPlace, a.tanh_()),
    ONE("sigmoid_", 1, kInPlace, a.sigmoid_()),
    ONE("relu_", 1, kInPlace, a.relu_()),
    ONE("neg_", 1, kInPlace, a.neg_()),
    ONE("zero_", 1, kInPlace, a.zero_()),
    ONE("fill_", 1, kInPlace, a.fill_(0.75)),
    ONE("clamp_", 1, kInPlace, a.clamp_(-0.5, 0.5)),
    ONE("masked_fill_", 2, kInPlace, a.masked_fill_(b > 0, 0.1)),
    ONE("index_add_", 2, kInPlace, a.index_add_(0, at::zeros({b.size(0)}, at::kLong), b)),
    ONE("transpose_", 1, kInPlace, a.transpose_(0, -1)),
    // Complex.
    ONE("complex", 2, kComplex, at::complex(a, b)),
    ONE("polar", 2, kComplex, at::polar(a.abs(), b)),
    ONE("real", 1, kComplex, at::real(a)),
    ONE("imag", 1, kComplex, at::imag(a)),
    ONE("conj", 1, kComplex, at::conj(a)),
    ONE("conj_physical", 1, kComplex, at::conj_physical(a)),
    ONE("view_as_real", 1, kComplex, at::view_as_real(a.resolve_conj())),
    // Sparse.
    ONE("to_sparse", 1, kSparse, a.to_sparse()),
    ONE("to_dense", 1, kSparse, a.to_dense()),
    ONE("coalesce", 1, kSparse, a.coalesce()),
    ONE("sparse_mm", 2, kSparse, at::mm(a.to_sparse(), b.t())),
    ONE("sparse_sum", 1, kSparse, at::_sparse_sum(a)),
    ONE("sparse_embedding", 1, kSparse, at::embedding(a, index_for(a, 0, k), -1, false, true)),
    ONE("to_sparse_csr", 1, kSparse, a.to_sparse_csr()),
    // Nested.
    ONE("to_nested", 2, kNested, at::_nested_tensor_from_tensor_list({a, b})),
    ONE("to_padded", 1, kNested, at::nested_to_padded_tensor(a, 0.0)),
    ONE("nested_add", 2, kNested, a + b),
    TWO("nested_unbind", 1, kNested, a.unbind()),
    // Without a node: gradients for roots, and what cuts a graph.
    ONE("ones_like", 1, kConstant, at::ones_like(a)),
    ONE("expanded_like", 1, kConstant, at::full({}, 0.75, a.options()).expand(a.sizes())),
    ONE("cos_of", 1, kConstant, at::cos(a.detach())),
    ONE("wider_than", 1, kConstant, at::ones_like(a.detach()).unsqueeze(0)),
    ONE("detach", 1, kConstant, a.detach()),
};

const std::vector<std::vector<int64_t>> kShapeTable = {
    {2, 3}, {2, 3}, {2, 3}, {3}, {1, 3}, {2, 1}, {}, {1}, {2, 2}, {2, 2, 2, 3}, {1, 2, 2, 3}};
constexpr at::ScalarType kDtypeTable[kDtypes] = {at::kFloat, at::kFloat, at::kDouble, at::kComplexFloat,
                                                 at::kBFloat16};

}  // namespace

const std::vector<Op>& ops() {
  static const auto* all = [] {
    auto* rows = new std::vector<Op>(kBuiltIn);
    rows->insert(rows->end(), function_rows().begin(), function_rows().end());
    return rows;
  }();
  return *all;
}

size_t op_index(const std::string& name) {
  const auto it = std::find_if(ops().begin(), ops().end(), [&](const Op& op) { return name == op.name; });
  TORCH_CHECK(it != ops().end(), "no op is named ", name);
  return static_cast<size_t>(it - ops().begin());
}

Tensor make_leaf(int shape, int layout, int dtype, int64_t k, bool requires_grad) {
  return leaf(kShapeTable.at(static_cast<size_t>(shape)), layout, kDtypeTable[dtype], k, requires_grad);
}

std::string leaf_text(int shape, int layout, int dtype, int64_t k, bool requires_grad) {
  return c10::str("leaf({", c10::Join(", ", kShapeTable.at(static_cast<size_t>(shape))), "}, ", layout,
                  ", at::k", kDtypeTable[dtype], ", ", k, requires_grad ? ", true)" : ", false)");
}

}  // namespace overdrive::fuzz
