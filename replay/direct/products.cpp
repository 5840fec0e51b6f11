#include "replay/direct/direct_step.h"
#include "replay/direct/product.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <vector>

namespace overdrive::replay {

namespace {

// A copy of a matrix with other strides, as LibTorch makes one for the library: row after row.
struct PackedCopy {
  at::Tensor rows;
  const float* source;
  int64_t down, right;

  explicit PackedCopy(const at::Tensor& matrix)
      : rows(at::detail::empty_cpu(matrix.sizes(), matrix.options())),
        source(matrix.const_data_ptr<float>()),
        down(matrix.stride(0)),
        right(matrix.stride(1)) {}
  void operator()() const {
    auto* to = rows.mutable_data_ptr<float>();
    const int64_t height = rows.size(0), width = rows.size(1);
    for (int64_t i = 0; i < height; ++i) {
      for (int64_t k = 0; k < width; ++k) *to++ = source[i * down + k * right];
    }
  }
};

// The product of the two where one has strides that the library does not take.
std::optional<Step> product_of_copies(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out) {
  std::vector<PackedCopy> copies;
  const auto taken = [&](const at::Tensor& matrix) {
    return is_a_matrix_of_the_library(matrix) ? matrix : copies.emplace_back(matrix).rows;
  };
  const at::Tensor first = taken(a), second = taken(b);
  const auto product = Product::of(first, second, out, 1, 0);
  if (copies.empty() || !product) return std::nullopt;
  return step_of([copies, product = *product] {
    for (const PackedCopy& copy : copies) copy();
    product();
  });
}

}  // namespace

std::optional<Step> direct_product(DirectCall& call) {
  const bool sum = call.name == "addmm";
  if ((!sum && call.name != "mm") || !Product::is_known() || call.op.name.ends_with("_") ||
      call.out.scalar_type() != at::kFloat) {
    return std::nullopt;
  }
  const at::Tensor &a = call.tensor(sum ? 1 : 0), &b = call.tensor(sum ? 2 : 1);
  if (a.numel() == 0 || b.numel() == 0 || a.scalar_type() != at::kFloat || b.scalar_type() != at::kFloat)
    return std::nullopt;
  if (!sum) {
    const auto product = Product::of(a, b, call.out, 1, 0);
    return product ? std::optional<Step>(product_step(*product)) : product_of_copies(a, b, call.out);
  }
  const at::Tensor& bias = call.tensor(0);
  auto product =
      Product::of(a, b, call.out, call.constant(4).toScalar().toFloat(), call.constant(3).toScalar().toFloat());
  if (!product || product->beta == 0 || bias.dim() != 1 || !bias.is_contiguous() || !call.out.is_contiguous() ||
      bias.size(0) != call.out.size(1) || bias.scalar_type() != at::kFloat) {
    return std::nullopt;
  }
  if (product->m == bias.size(0)) {
    product->start = bias.const_data_ptr<float>();
    return product_step(*product);
  }
  return step_of([product = *product, number = bias.const_data_ptr<float>()] {  // of one column
    std::fill_n(product.c, product.m, *number);
    product();
  });
}

}  // namespace overdrive::replay
