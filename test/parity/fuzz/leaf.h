// The tensors that programs start from, and the helpers that ops need. Printed programs hold this
// file as it is, so it needs LibTorch only.
#pragma once

#include <torch/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <vector>

namespace overdrive::fuzz {

// Two matrices that can be multiplied, whatever the tensors' shapes.
inline at::Tensor column(const at::Tensor& t) { return t.reshape({-1, 1}); }
inline at::Tensor row(const at::Tensor& t) { return t.reshape({1, -1}).narrow(1, 0, 1); }

inline int64_t dim_of(const at::Tensor& t, int64_t k) { return t.dim() ? k % t.dim() : 0; }

inline at::Tensor index_for(const at::Tensor& t, int64_t dim, int64_t k) {
  const int64_t size = t.dim() ? t.size(dim) : 1;
  return at::arange(size + 1).mul(k + 1).remainder(size);
}

// What a node's pre-hook may give back: nobody checks it, and kernels read beyond the end of a gradient that is
// smaller than the one they expect.
inline at::Tensor pre_hook_result(const at::Tensor& given, const at::Tensor& gradient) {
  if (!given.defined() || !gradient.defined() || given.is_nested() || gradient.is_nested()) return gradient;
  return given.sizes() == gradient.sizes() ? given : gradient;
}

inline at::Tensor leaf(at::IntArrayRef shape, int layout, at::ScalarType dtype, int64_t k, bool requires_grad) {
  at::NoGradGuard no_grad;
  auto values = [&](at::IntArrayRef sizes) {
    return at::arange(c10::multiply_integers(sizes), at::kDouble)
        .mul(0.37)
        .add(0.11 * k + 0.05)
        .sin()
        .mul(1.7)
        .reshape(sizes)
        .to(dtype);
  };
  std::vector<int64_t> sizes = shape.vec();
  const int64_t last = static_cast<int64_t>(sizes.size()) - 1;
  at::Tensor t = values(shape);
  if (layout == 1 && last > 0) {
    std::swap(sizes[0], sizes[last]);
    t = values(sizes).transpose(0, last);
  } else if (layout == 2 && last == 3) {
    t = t.contiguous(at::MemoryFormat::ChannelsLast);
  } else if (layout == 3 && last >= 0) {
    sizes[0] = 1;
    t = values(sizes).expand(shape);
  } else if (layout == 4 && last >= 0) {
    sizes[last] *= 2;
    t = values(sizes).slice(last, 0, sizes[last], 2);
  } else if (layout == 5 && last >= 0) {
    t = t.to_sparse();
  } else if (layout == 6 && last == 1) {
    t = at::_nested_tensor_from_tensor_list({t, t.narrow(0, 0, 1)});
  } else if (layout == 7 && last == 1) {
    t = t.to_sparse_csr();
  }
  return t.detach().requires_grad_(requires_grad);
}

}  // namespace overdrive::fuzz
