#include "replay/direct/product.h"

#include <algorithm>
#include <array>
#include <cstring>

extern "C" __attribute__((weak)) void sgemm_(const char*, const char*, const int*, const int*, const int*,
                                             const float*, const float*, const int*, const float*, const int*,
                                             const float*, float*, const int*);

namespace overdrive::replay {

namespace {

// Of a column-major matrix.
AddressRange range_of(const float* begin, int64_t rows, int64_t columns, int64_t leading) {
  const std::array<int64_t, 2> sizes{rows, columns}, strides{sizeof(float), leading * int64_t{sizeof(float)}};
  return hull(begin, sizes.data(), strides.data(), sizes.size(), sizeof(float));
}

// Whether a matrix is column-major with a leading dimension that is allowed for these rows.
bool is_column_major(const at::Tensor& t, int64_t rows, int64_t row_dim) {
  return t.stride(row_dim) == 1 && t.stride(1 - row_dim) >= std::max<int64_t>(1, rows);
}

}  // namespace

bool Product::is_known() { return &sgemm_ != nullptr; }

bool is_a_matrix_of_the_library(const at::Tensor& t) {
  return is_column_major(t, t.size(0), 0) || is_column_major(t, t.size(1), 1);
}

std::optional<Product> Product::of(at::Tensor a, at::Tensor b, const at::Tensor& c, float alpha, float beta) {
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

void Product::operator()() const {
  for (int64_t i = 0; start && i < n; ++i) std::memcpy(c + i * ldc, start, m * sizeof(float));
  sgemm_(&transpose_a, &transpose_b, &m, &n, &k, &alpha, a, &lda, b, &ldb, &beta, c, &ldc);
}

Product Product::columns(int64_t begin, int64_t end) const {
  Product result = *this;
  result.n = static_cast<int>(end - begin);
  result.b += transpose_b == 'n' ? begin * ldb : begin;
  result.c += begin * ldc;
  return result;
}

Touched Product::touched() const {
  Touched result;
  result.reads.push_back(transpose_a == 'n' ? range_of(a, m, k, lda) : range_of(a, k, m, lda));
  result.reads.push_back(transpose_b == 'n' ? range_of(b, k, n, ldb) : range_of(b, n, k, ldb));
  if (start) result.reads.push_back(range_of(start, m, 1, m));
  result.writes.push_back(range_of(c, m, n, ldc));
  return result;
}

}  // namespace overdrive::replay
