// What the drivers of drivers.h are made of, free of templates: functions of a list of
// tensors. The folder's own use; drivers.h turns a caller's function into one of these.
#pragma once

#include "engine/base/export.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace overdrive::forward_ad {

using Tensors = std::vector<at::Tensor>;

struct JacobianOptions {
  // How many rows or columns are computed at once. Unset: all.
  std::optional<int64_t> chunk_size = std::nullopt;
  // Compute a chunk with one vectorised run (vmap) where the operators allow it; else, or
  // with false, one by one.
  bool vectorize = true;
};

// Which way the gradient of a gradient is taken.
enum class HvpMode { kForwardOverReverse, kReverseOverReverse };

namespace detail {

struct Output {
  Tensors values;
  Tensors aux;
};
using Function = std::function<Output(const Tensors&)>;

struct Jvp {
  Output output;
  Tensors tangents;
};
OVERDRIVE_API Jvp jvp(const Function& f, const Tensors& inputs, const Tensors& tangents);

// J^T u for the point of a vjp, any number of times.
using Pullback = std::function<Tensors(const Tensors&)>;

struct Vjp {
  Output output;
  Pullback pullback;
};
OVERDRIVE_API Vjp vjp(const Function& f, const Tensors& inputs);

// jacobian[o][i] has the shape of output o followed by that of input i.
struct Jacobian {
  Output output;
  std::vector<Tensors> jacobian;
};
OVERDRIVE_API Jacobian jacfwd(const Function& f, const Tensors& inputs, const JacobianOptions& options);
OVERDRIVE_API Jacobian jacrev(const Function& f, const Tensors& inputs, const JacobianOptions& options);

// jacobian[i][j] of the gradients of the one output with regard to input i.
OVERDRIVE_API Jacobian hessian(const Function& f, const Tensors& inputs, const JacobianOptions& options);

struct Hvp {
  Output output;
  Tensors gradients;
  Tensors products;
};
OVERDRIVE_API Hvp hvp(const Function& f, const Tensors& inputs, const Tensors& vectors, HvpMode mode);

}  // namespace detail
}  // namespace overdrive::forward_ad
