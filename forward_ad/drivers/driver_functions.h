// The drivers of drivers.h without templates: functions of a list of tensors. The folder's own use; drivers.h
// and custom_jvp.h turn a caller's function into one of these. No state; any thread.
#pragma once

#include "engine/base/export.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace overdrive::base {
class GeneratorStates;
}

namespace overdrive::forward_ad {

using Tensors = std::vector<at::Tensor>;

struct JacobianOptions {  // How a Jacobian is computed.
  // How many rows or columns are computed at once. Unset: all.
  std::optional<int64_t> chunk_size = std::nullopt;
  // Computes a chunk with one vectorised run (vmap) where the operators allow it, else one direction at a time.
  bool vectorize = true;
};

enum class HvpMode { kForwardOverReverse, kReverseOverReverse };

// What random operators draw inside vmap(): an error, each row its own numbers, or all rows the same.
enum class Randomness { kError, kDifferent, kSame };

// Dimensions of tensors, each the one that vmap() hides, or none.
using VmapDims = std::vector<std::optional<int64_t>>;

struct VmapOptions {
  // The dimension of each input that is mapped; nullopt: every row gets the whole input. Empty: 0 for all.
  VmapDims in_dims = {};
  // The place of the mapped dimension in each result; one for all, or one for each. nullopt: the result is the
  // same for all rows. Empty: 0 for all.
  VmapDims out_dims = {};
  Randomness randomness = Randomness::kError;
  // How many rows are computed at once. Unset: all.
  std::optional<int64_t> chunk_size = std::nullopt;
};

// What the vmap rule of a custom function is told, beside the dimensions.
struct VmapInfo {
  int64_t batch_size;
  Randomness randomness;
};

// What it returns: the results for all rows, and the dimension of the rows in each, or none.
struct VmapResult {
  Tensors outputs;
  VmapDims out_dims;
};

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

struct Grad {
  Output output;
  Tensors gradients;
};
OVERDRIVE_API Grad grad(const char* driver, const Function& f, const Tensors& inputs);

OVERDRIVE_API Tensors vmap(const Function& f, const Tensors& inputs, const VmapOptions& options);

// A custom function as custom_jvp.h makes it of a torch::autograd::Function.
struct CustomFunction {
  std::string name;
  // The call as LibTorch knows it, for use outside of all layers.
  std::function<Tensors(const Tensors&)> apply;
  // The tangents of the outputs. Empty: there is no rule.
  std::function<Tensors(const Tensors& inputs, const Tensors& outputs, const Tensors& tangents)> jvp;
  // The results for many rows at once. Empty: there is no rule.
  std::function<VmapResult(const VmapInfo&, const VmapDims&, const Tensors& inputs)> vmap;
  // Without a rule: differentiate backward() with regard to its argument instead.
  bool double_vjp = false;
  // Made of the backward() of another function.
  bool is_pullback = false;
  // The states of the generators at the first call, if it used them: noted by call_custom().
  mutable std::shared_ptr<base::GeneratorStates> numbers = nullptr;
};

using CustomFunctionPtr = std::shared_ptr<const CustomFunction>;

// Runs the function for the layers on this thread's stack, one after the other.
OVERDRIVE_API Tensors call_custom(const CustomFunctionPtr& function, const Tensors& inputs);

// A list argument is not differentiated: an error when it holds a tensor with a derivative.
OVERDRIVE_API void check_list_argument(const std::string& name, at::TensorList list);

}  // namespace detail
}  // namespace overdrive::forward_ad
