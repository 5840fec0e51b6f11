// Sums of exponentials and of magnitudes, and products, along dimensions.
//
// The faults. Softmax, log_softmax, logsumexp and the 1-norm: on a plain tensor the forward formula writes in
// place into a tensor that reverse mode has saved, so the gradient of the tangent is wrong or an error.
// Products (prod, cumprod): the formulas divide by the factors, so derivatives from the second order on are
// wrong where a factor is zero, and inexact where one is small. scatter_reduce of products: the tangent is
// wrong in the first order.
#include "forward_ad/rules/repair.h"
#include "forward_ad/rules/rule_support.h"

#include <initializer_list>

namespace overdrive::forward_ad::rules {
namespace {
using at::Tensor;
using c10::DispatchKeySet;
using MaybeType = std::optional<at::ScalarType>;

// The gradient of a driver's tangent, on its bare level.
bool is_plain_and_recorded(const Tensor& x) {
  return any_tangent(x) && is_plain(x) && is_recorded(x) && x.numel() > 0;
}

// Numbers to subtract from the exponents, so that none is too large: the result does not depend on them.
Tensor largest(const Tensor& x, at::IntArrayRef dims) {
  Tensor found = x.detach().amax(dims, /*keepdim=*/true);
  return at::where(found.isfinite(), found, at::zeros_like(found));
}

Tensor softmax(DispatchKeySet keys, const Tensor& x, int64_t dim, bool half_to_float) {
  if (!is_plain_and_recorded(x)) return at::_ops::_softmax::redispatch(keys & kBelow, x, dim, half_to_float);
  Tensor exponents = half_to_float ? x.to(at::kFloat) : x;
  Tensor powers = (exponents - largest(exponents, dim)).exp();
  return powers / powers.sum(dim, /*keepdim=*/true);
}

Tensor log_softmax(DispatchKeySet keys, const Tensor& x, int64_t dim, bool half_to_float) {
  if (!is_plain_and_recorded(x))
    return at::_ops::_log_softmax::redispatch(keys & kBelow, x, dim, half_to_float);
  Tensor exponents = half_to_float ? x.to(at::kFloat) : x;
  exponents = exponents - largest(exponents, dim);
  return exponents - exponents.exp().sum(dim, /*keepdim=*/true).log();
}

Tensor logsumexp(DispatchKeySet keys, const Tensor& x, at::IntArrayRef dims, bool keepdim) {
  if (!is_plain_and_recorded(x)) return at::_ops::logsumexp::redispatch(keys & kBelow, x, dims, keepdim);
  Tensor most = largest(x, dims);
  Tensor result = (x - most).exp().sum(dims, /*keepdim=*/true).log() + most;
  return keepdim ? result : result.sum(dims);  // of one element each
}

Tensor vector_norm(DispatchKeySet keys, const Tensor& x, const c10::Scalar& p, at::OptionalIntArrayRef dims,
                   bool keepdim, MaybeType dtype) {
  if (!p.equal(1) || !is_plain_and_recorded(x)) {
    return at::_ops::linalg_vector_norm::redispatch(keys & kBelow, x, p, dims, keepdim, dtype);
  }
  return x.abs().sum(dims, keepdim, dtype);
}

Tensor norm(DispatchKeySet keys, const Tensor& x, const std::optional<c10::Scalar>& p, at::IntArrayRef dims,
            bool keepdim) {
  if (!p || !p->equal(1) || !is_plain_and_recorded(x)) {
    return at::_ops::norm_ScalarOpt_dim::redispatch(keys & kBelow, x, p, dims, keepdim);
  }
  return x.abs().sum(dims, keepdim);
}

Tensor converted(const Tensor& x, MaybeType dtype) { return dtype ? x.to(*dtype) : x; }

// The product of all along a dimension, which stays: the one half times the other.
Tensor product_along(Tensor x, int64_t dim) {
  for (int64_t count = x.size(dim); count > 1; count = x.size(dim)) {
    const int64_t half = count / 2;
    Tensor products = x.narrow(dim, 0, half) * x.narrow(dim, half, half);
    x = count % 2 == 0 ? products : at::cat({products, x.narrow(dim, 2 * half, 1)}, dim);
  }
  return x;
}

Tensor prod(DispatchKeySet keys, const Tensor& x, MaybeType dtype) {
  if (!any_derivative(x) || x.numel() == 0) return at::_ops::prod::redispatch(keys & kBelow, x, dtype);
  return product_along(converted(x, dtype).reshape({-1}), 0).squeeze(0);
}

Tensor prod_of_dim(DispatchKeySet keys, const Tensor& x, int64_t dim, bool keepdim, MaybeType dtype) {
  if (!any_derivative(x) || x.dim() == 0 || x.size(dim) == 0) {
    return at::_ops::prod_dim_int::redispatch(keys & kBelow, x, dim, keepdim, dtype);
  }
  Tensor product = product_along(converted(x, dtype), dim);
  return keepdim ? product : product.squeeze(dim);
}

// Each with the one before, then with the one two before, and so on.
Tensor cumprod(DispatchKeySet keys, const Tensor& x, int64_t dim, MaybeType dtype) {
  if (!any_derivative(x) || x.dim() == 0 || x.size(dim) == 0)
    return at::_ops::cumprod::redispatch(keys & kBelow, x, dim, dtype);
  Tensor result = converted(x, dtype);
  for (int64_t step = 1, count = x.size(dim); step < count; step *= 2) {
    result = at::cat({result.narrow(dim, 0, step),
                      result.narrow(dim, step, count - step) * result.narrow(dim, 0, count - step)},
                     dim);
  }
  return result;
}

Tensor scatter_reduce(DispatchKeySet keys, const Tensor& self, int64_t dim, const Tensor& index,
                      const Tensor& src, c10::string_view reduce, bool include_self) {
  if (reduce != "prod" || self.dim() == 0 || index.numel() == 0 || !any_derivative(self, src)) {
    return at::_ops::scatter_reduce_two::redispatch(keys & kBelow, self, dim, index, src, reduce, include_self);
  }
  // The part of src that is read and the part of self that is written, with the dimension in question as the
  // last.
  Tensor result = self.clone(), place = result, old = self, factors = src;
  for (int64_t other = 0; other < self.dim(); ++other) {
    factors = factors.narrow(other, 0, index.size(other));
    if (other == (dim + self.dim()) % self.dim()) continue;
    old = old.narrow(other, 0, index.size(other));
    place = place.narrow(other, 0, index.size(other));
  }
  old = old.movedim(dim, -1);
  Tensor rows = at::arange(self.size(dim), index.options()).unsqueeze(-1);
  Tensor goes_there = index.movedim(dim, -1).unsqueeze(-2) == rows;
  Tensor those = factors.movedim(dim, -1).unsqueeze(-2);
  Tensor product = at::where(goes_there, those, at::ones_like(those)).prod(-1);
  Tensor written = include_self ? old * product : at::where(goes_there.any(-1), product, old);
  place.copy_(written.movedim(-1, dim));
  return result;
}

void add_sums(torch::Library& table) {
  table.impl("_softmax", TORCH_FN(softmax));
  table.impl("_log_softmax", TORCH_FN(log_softmax));
  table.impl("logsumexp", TORCH_FN(logsumexp));
  table.impl("linalg_vector_norm", TORCH_FN(vector_norm));
  table.impl("norm.ScalarOpt_dim", TORCH_FN(norm));
}

void add_products(torch::Library& table) {
  table.impl("prod", TORCH_FN(prod));
  table.impl("prod.dim_int", TORCH_FN(prod_of_dim));
  table.impl("cumprod", TORCH_FN(cumprod));
}

std::vector<Tensor> of_each(std::initializer_list<Formula> functions, const Tensor& x) {
  std::vector<Tensor> numbers;
  for (const Formula& f : functions) {
    for (Tensor& number : second_order(f, x)) numbers.push_back(std::move(number));
  }
  return numbers;
}

std::vector<Tensor> try_sums() {
  return of_each(
      {[](const Tensor& x) { return at::softmax(x, 0); }, [](const Tensor& x) { return at::log_softmax(x, 0); },
       [](const Tensor& x) { return at::logsumexp(x, at::IntArrayRef{0}); },
       [](const Tensor& x) { return at::linalg_vector_norm(x, 1); },
       [](const Tensor& x) { return at::norm(x, 1, at::IntArrayRef{0}, false); }},
      row(-1.25, {4}));
}

// The second factor is zero.
std::vector<Tensor> try_products() {
  return of_each({[](const Tensor& x) { return x.prod(); }, [](const Tensor& x) { return x.prod(0); },
                  [](const Tensor& x) { return x.cumprod(0); }},
                 row(-0.5, {4}));
}

std::vector<Tensor> try_scatter() {
  const Tensor index = at::arange(4).remainder(2);
  return of_each({[&](const Tensor& x) { return at::scatter_reduce(x.narrow(0, 0, 2), 0, index, x, "prod"); }},
                 row(-0.5, {4}));
}

}  // namespace

void list_reduction_repairs(std::vector<Repair>& list) {
  list.push_back({"gradients of the tangents of softmax, logsumexp and the 1-norm", add_sums, try_sums});
  list.push_back({"second derivatives of products with a zero", add_products, try_products});
  list.push_back({"derivatives of scatter_reduce of products",
                  [](torch::Library& table) { table.impl("scatter_reduce.two", TORCH_FN(scatter_reduce)); },
                  try_scatter});
}

}  // namespace overdrive::forward_ad::rules
