// One call of the library of matrix products that LibTorch was built with, as LibTorch makes it. A plain value;
// any thread. The program owns the matrices.
#pragma once

#include "replay/bind/share.h"

#include <ATen/core/Tensor.h>

#include <optional>

namespace overdrive::replay {

// Matrices are column-major, as the library wants them: m rows and n columns of the result, k numbers in a sum.
struct Product {
  char transpose_a, transpose_b;
  int m, n, k, lda, ldb, ldc;
  float alpha, beta;
  const float *a, *b;
  float* c;
  // What each column of the result begins with, m numbers; null: what is there, or nothing.
  const float* start = nullptr;

  // Whether LibTorch exports the library.
  static bool is_known();
  // With LibTorch's choice of transpositions: the result is column-major, or its transpose is and the operands
  // change places. None where the library does not take the strides.
  static std::optional<Product> of(at::Tensor a, at::Tensor b, const at::Tensor& c, float alpha, float beta);

  void operator()() const;
  // Columns of the result from `begin` up to `end`.
  Product columns(int64_t begin, int64_t end) const;
  Touched touched() const;
};

bool is_a_matrix_of_the_library(const at::Tensor& t);

// Its shares are columns of the result, where the library computes some of them as it computes all: it is tried
// for the very sizes, once in a thread.
Step product_step(const Product& product);

}  // namespace overdrive::replay
