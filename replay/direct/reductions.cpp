#include "replay/direct/direct_step.h"
#include "replay/direct/kernels.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/Reduction.h>
#include <ATen/native/ReduceOpsUtils.h>

namespace overdrive::replay {

#ifdef OVERDRIVE_DIRECT_KERNELS

namespace {

using at::TensorIterator;
namespace native = at::native;

struct Reduction {
  at::DimVector dims;
  bool keep = false;
  int64_t count = 1;
};

// The dimensions of sum and mean, in both overloads.
std::optional<Reduction> reduction_of(DirectCall& call) {
  Reduction result;
  const at::Tensor& self = call.tensor(0);
  if (call.op.in.size() > 2) {
    if (!call.constant(1).isNone()) result.dims = at::DimVector(call.constant(1).toIntVector());
    result.keep = call.constant(2).toBool();
    if (!call.constant(3).isNone()) return std::nullopt;
  } else if (!call.constant(1).isNone()) {
    return std::nullopt;
  }
  if (result.dims.empty()) result.count = self.numel();
  for (const int64_t dim : result.dims) result.count *= self.size(dim);
  return result;
}

// The squares go into memory of the step's own, as LibTorch's go into a passing tensor.
std::optional<Step> squared_distance(DirectCall& call) {
  if (call.op.in.size() != 3 || !call.has_tensor(0) || !call.has_tensor(1)) return std::nullopt;
  const at::Tensor &self = call.tensor(0), &target = call.tensor(1);
  const int64_t reduction = call.constant(2).toInt();
  if (reduction == at::Reduction::None || self.sizes() != target.sizes() || !self.is_contiguous() ||
      !target.is_contiguous() || self.scalar_type() != call.out.scalar_type() ||
      target.scalar_type() != call.out.scalar_type() || self.numel() == 0) {
    return std::nullopt;
  }
  const at::Tensor squares = at::detail::empty_cpu(self.sizes(), self.options());
  auto square = std::make_shared<TensorIterator>(
      TensorIterator::binary_op(const_cast<at::Tensor&>(squares), self, target));
  auto sum = std::make_shared<TensorIterator>(at::meta::make_reduction_from_out_ty(
      squares, call.out, at::OptionalIntArrayRef(at::IntArrayRef{}), false, call.out.scalar_type()));
  if (reduction == at::Reduction::Sum) {
    return step_of([square, sum, squares, distance = chosen(native::mse_stub), add = chosen(native::sum_stub)] {
      distance(*square);
      add(*sum);
    });
  }
  auto quotient = std::make_shared<TensorIterator>(
      TensorIterator::binary_op(call.out, call.out, native::wrapped_scalar_tensor(self.numel())));
  return step_of([square, sum, quotient, squares, distance = chosen(native::mse_stub),
                  add = chosen(native::sum_stub), divide = chosen(native::div_true_stub)] {
    distance(*square);
    add(*sum);
    divide(*quotient);
  });
}

}  // namespace

std::optional<Step> direct_reduction(DirectCall& call) {
  if (call.name == "mse_loss") return squared_distance(call);
  if ((call.name != "sum" && call.name != "mean") || !call.has_tensor(0)) return std::nullopt;
  const at::Tensor& self = call.tensor(0);
  if (self.scalar_type() != call.out.scalar_type() || self.numel() == 0) return std::nullopt;
  const auto reduction = reduction_of(call);
  if (!reduction) return std::nullopt;
  // The iterators keep no reference that could be the last one: the program has the tensors.
  auto sum = std::make_shared<TensorIterator>(at::meta::make_reduction_from_out_ty(
      self, call.out, at::OptionalIntArrayRef(reduction->dims), reduction->keep, call.out.scalar_type()));
  if (call.name == "sum") return step_of([sum, add = chosen(native::sum_stub)] { add(*sum); });
  auto quotient = std::make_shared<TensorIterator>(
      TensorIterator::binary_op(call.out, call.out, native::wrapped_scalar_tensor(reduction->count)));
  return step_of([sum, quotient, add = chosen(native::sum_stub), divide = chosen(native::div_true_stub)] {
    add(*sum);
    divide(*quotient);
  });
}

#else

std::optional<Step> direct_reduction(DirectCall&) { return std::nullopt; }

#endif

}  // namespace overdrive::replay
