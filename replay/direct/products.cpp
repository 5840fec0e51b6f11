#include "replay/direct/direct_step.h"

#include <ATen/EmptyTensor.h>

#include <cstring>
#include <vector>

// The library of products that LibTorch was built with, where it exports it.
extern "C" __attribute__((weak)) void sgemm_(const char*, const char*, const int*, const int*, const int*,
                                             const float*, const float*, const int*, const float*, const int*,
                                             const float*, float*, const int*);

namespace overdrive::replay {

namespace {

// A product of column-major matrices, as the library wants it.
struct Product {
  char transpose_a, transpose_b;
  int m, n, k, lda, ldb, ldc;
  float alpha, beta;
  const float *a, *b;
  float* c;

  void operator()() const {
    sgemm_(&transpose_a, &transpose_b, &m, &n, &k, &alpha, a, &lda, b, &ldb, &beta, c, &ldc);
  }
};

// Whether a matrix is column-major with a leading dimension that is allowed for these rows.
bool is_column_major(const at::Tensor& t, int64_t rows, int64_t row_dim) {
  return t.stride(row_dim) == 1 && t.stride(1 - row_dim) >= std::max<int64_t>(1, rows);
}

// LibTorch's choice of transpositions: the result is column-major, or its transpose is and the operands change
// places.
std::optional<Product> plan_product(at::Tensor a, at::Tensor b, const at::Tensor& c, float alpha, float beta) {
  const auto fits_columns = [&](int64_t row_dim) {
    return c.stride(row_dim) == 1 &&
           (c.size(1 - row_dim) == 1 || c.stride(1 - row_dim) >= std::max<int64_t>(1, c.size(row_dim)));
  };
  int64_t row = 0;
  if (!fits_columns(0)) {
    if (!fits_columns(1)) return std::nullopt;
    row = 1;
    std::swap(a, b);
  }
  const int64_t column = 1 - row;
  const int64_t m = c.size(row), n = c.size(column), k = a.size(column);
  const bool plain_a = is_column_major(a, m, row), plain_b = is_column_major(b, k, row);
#if defined(__aarch64__)
  // LibTorch may give these to oneDNN, by their sizes and by the processor's name. Its bits are others, and may
  // be the same for the numbers that a recording compares.
  if (row == 1 && !plain_a && plain_b) return std::nullopt;
#endif
  if (!plain_a && !is_column_major(a, k, column)) return std::nullopt;
  if (!plain_b && !is_column_major(b, n, column)) return std::nullopt;
  int64_t lda = a.stride(plain_a ? column : row), ldb = b.stride(plain_b ? column : row),
          ldc = c.stride(column);
  // A matrix of one column may have any leading dimension; the library wants one that is large enough.
  if (n == 1) ldc = m;
  if (plain_a ? k == 1 : m == 1) lda = plain_a ? m : k;
  if (plain_b ? n == 1 : k == 1) ldb = plain_b ? k : n;
  return Product{.transpose_a = plain_a ? 'n' : 't',
                 .transpose_b = plain_b ? 'n' : 't',
                 .m = static_cast<int>(m),
                 .n = static_cast<int>(n),
                 .k = static_cast<int>(k),
                 .lda = static_cast<int>(lda),
                 .ldb = static_cast<int>(ldb),
                 .ldc = static_cast<int>(ldc),
                 .alpha = alpha,
                 .beta = beta,
                 .a = a.const_data_ptr<float>(),
                 .b = b.const_data_ptr<float>(),
                 .c = c.mutable_data_ptr<float>()};
}

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

bool is_a_matrix_of_the_library(const at::Tensor& t) {
  return is_column_major(t, t.size(0), 0) || is_column_major(t, t.size(1), 1);
}

// The product of the two where one has strides that the library does not take.
std::optional<Step> product_of_copies(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out) {
  std::vector<PackedCopy> copies;
  const auto taken = [&](const at::Tensor& matrix) {
    return is_a_matrix_of_the_library(matrix) ? matrix : copies.emplace_back(matrix).rows;
  };
  const at::Tensor first = taken(a), second = taken(b);
  const auto product = plan_product(first, second, out, 1, 0);
  if (copies.empty() || !product) return std::nullopt;
  return step_of([copies, product = *product] {
    for (const PackedCopy& copy : copies) copy();
    product();
  });
}

}  // namespace

std::optional<Step> direct_product(DirectCall& call) {
  const bool sum = call.name == "addmm";
  if ((!sum && call.name != "mm") || !&sgemm_ || call.op.name.ends_with("_") ||
      call.out.scalar_type() != at::kFloat) {
    return std::nullopt;
  }
  const at::Tensor &a = call.tensor(sum ? 1 : 0), &b = call.tensor(sum ? 2 : 1);
  if (a.numel() == 0 || b.numel() == 0 || a.scalar_type() != at::kFloat || b.scalar_type() != at::kFloat)
    return std::nullopt;
  if (!sum) {
    const auto product = plan_product(a, b, call.out, 1, 0);
    return product ? std::optional<Step>(step_of(*product)) : product_of_copies(a, b, call.out);
  }
  const at::Tensor& bias = call.tensor(0);
  const auto product = plan_product(a, b, call.out, call.constant(4).toScalar().toFloat(),
                                    call.constant(3).toScalar().toFloat());
  if (!product || product->beta == 0 || bias.dim() != 1 || !bias.is_contiguous() || !call.out.is_contiguous() ||
      bias.size(0) != call.out.size(1) || bias.scalar_type() != at::kFloat) {
    return std::nullopt;
  }
  return step_of([product = *product, row = bias.const_data_ptr<float>(), bytes = bias.nbytes(),
                  width = bias.size(0), rows = call.out.size(0)] {
    for (int64_t i = 0; i < rows; ++i) std::memcpy(product.c + i * width, row, bytes);
    product();
  });
}

}  // namespace overdrive::replay
