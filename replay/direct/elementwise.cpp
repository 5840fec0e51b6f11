#include "replay/bind/share.h"
#include "replay/direct/direct_step.h"
#include "replay/direct/kernels.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/Reduction.h>

#include <unordered_map>

namespace overdrive::replay {

#ifdef OVERDRIVE_DIRECT_KERNELS

namespace {

using at::TensorIterator;
using at::TensorIteratorBase;
using at::TensorIteratorConfig;
namespace native = at::native;

// The bytes of each operand of an iterator, results first.
Touched touched_by(const TensorIterator& iterator) {
  Touched touched;
  for (int i = 0; i < iterator.ntensors(); ++i) {
    auto& ranges = i < iterator.noutputs() ? touched.writes : touched.reads;
    ranges.push_back(hull(iterator.data_ptr(i), iterator.shape().data(), iterator.strides(i).data(),
                          static_cast<size_t>(iterator.ndim()), iterator.element_size(i)));
  }
  return touched;
}

// Whether each operand begins where a line of the cache does, or is one number. Else a kernel may have a loop
// of its own for the elements in front of the first line.
bool is_aligned(const TensorIterator& iterator) {
  for (int i = 0; i < iterator.ntensors(); ++i) {
    const bool is_number = iterator.ndim() == 1 && iterator.strides(i)[0] == 0;
    if (!is_number && reinterpret_cast<uintptr_t>(iterator.data_ptr(i)) % kShareAlignment != 0) return false;
  }
  return true;
}

// A kernel over the elements of an iterator. Its shares are the same kernel over parts of the outermost
// dimension: rows of the kernel's inner loop stay whole, and where there is one row, it is cut by kShareGrain.
class IteratorStep : public Step::State {
 public:
  explicit IteratorStep(TensorIterator iterator) : iterator_(std::move(iterator)) {}
  static void run(Step::State& state) {
    auto& self = static_cast<IteratorStep&>(state);
    self.run_over(self.iterator_);
  }
  std::vector<Share> shares(int count) const override {
    const int dimensions = iterator_.ndim();
    if (dimensions == 0 || iterator_.numel() == 0 || (dimensions == 1 && !is_aligned(iterator_))) return {};
    const int cut = dimensions - 1;
    const std::vector<int64_t> bounds =
        share_bounds(iterator_.shape()[cut], dimensions == 1 ? kShareGrain : 1, count);
    std::vector<Share> result;
    for (size_t i = 0; i + 1 < bounds.size(); ++i) {
      TensorIterator part = iterator_;
      part.narrow(cut, bounds[i], bounds[i + 1] - bounds[i]);
      const Touched touched = touched_by(part);
      result.push_back({step_of([this, part = std::move(part)]() mutable { run_over(part); }), touched});
    }
    return result;
  }

 protected:
  virtual void run_over(TensorIterator& iterator) const = 0;

  TensorIterator iterator_;
};

template <typename State, typename... Arguments>
Step iterator_step(Arguments&&... arguments) {
  return Step(&IteratorStep::run, std::make_unique<State>(std::forward<Arguments>(arguments)...));
}

template <typename Kernel>
class KernelStep final : public IteratorStep {
 public:
  KernelStep(TensorIterator iterator, Kernel kernel) : IteratorStep(std::move(iterator)), kernel_(kernel) {}

 private:
  void run_over(TensorIterator& iterator) const override { kernel_(iterator); }

  const Kernel kernel_;
};

template <typename Kernel>
Step over(TensorIterator iterator, Kernel kernel) {
  return iterator_step<KernelStep<Kernel>>(std::move(iterator), kernel);
}

// With a number that the kernel is given in every run.
template <typename Kernel>
class NumberStep final : public IteratorStep {
 public:
  NumberStep(TensorIterator iterator, size_t argument, c10::Scalar number, double sign, Kernel kernel)
      : IteratorStep(std::move(iterator)),
        argument_(argument),
        number_(std::move(number)),
        sign_(sign),
        kernel_(kernel) {}
  bool set_number(size_t argument, double value) override {
    if (argument != argument_) return false;
    number_ = c10::Scalar(sign_ * value);
    return true;
  }

 private:
  void run_over(TensorIterator& iterator) const override { kernel_(iterator, number_); }

  const size_t argument_;
  c10::Scalar number_;
  const double sign_;
  const Kernel kernel_;
};

template <typename Kernel>
Step with_number(TensorIterator iterator, size_t argument, c10::Scalar number, Kernel kernel, double sign = 1) {
  return iterator_step<NumberStep<Kernel>>(std::move(iterator), argument, std::move(number), sign, kernel);
}

// With a number as the second operand: the iterator has it in memory, in the type of the computation, and so
// has each part of the iterator.
template <typename Kernel>
class OperandStep final : public IteratorStep {
 public:
  OperandStep(TensorIterator iterator, size_t argument, Kernel kernel)
      : IteratorStep(std::move(iterator)), argument_(argument), kernel_(kernel) {}
  bool set_number(size_t argument, double value) override {
    if (argument != argument_) return false;
    if (iterator_.dtype(2) == at::kFloat) {
      *static_cast<float*>(iterator_.data_ptr(2)) = static_cast<float>(value);
    } else {
      *static_cast<double*>(iterator_.data_ptr(2)) = value;
    }
    return true;
  }

 private:
  void run_over(TensorIterator& iterator) const override { kernel_(iterator); }

  const size_t argument_;
  const Kernel kernel_;
};

template <typename Kernel>
Step with_operand(TensorIterator iterator, size_t argument, Kernel kernel) {
  return iterator_step<OperandStep<Kernel>>(std::move(iterator), argument, kernel);
}

// Tensors of the result's type, or numbers.
bool fits(DirectCall& call, std::initializer_list<size_t> tensors) {
  for (const size_t i : tensors) {
    if (!call.has_tensor(i)) return false;
    const at::Tensor& tensor = call.tensor(i);
    if (tensor.scalar_type() != call.out.scalar_type() && !tensor.unsafeGetTensorImpl()->is_wrapped_number())
      return false;
  }
  return true;
}

using PlainKernel = void (*)(TensorIteratorBase&);

template <typename Kernel>
using Table = std::unordered_map<std::string_view, Kernel>;

PlainKernel unary_kernel(std::string_view name) {
  static const Table<PlainKernel> table{
      {"tanh", chosen(native::tanh_stub)}, {"sigmoid", chosen(native::sigmoid_stub)},
      {"neg", chosen(native::neg_stub)},   {"sqrt", chosen(native::sqrt_stub)},
      {"exp", chosen(native::exp_stub)},   {"log", chosen(native::log_stub)},
      {"sin", chosen(native::sin_stub)},   {"cos", chosen(native::cos_stub)},
      {"abs", chosen(native::abs_stub)},   {"rsqrt", chosen(native::rsqrt_stub)},
      {"silu", chosen(native::silu_stub)}, {"reciprocal", chosen(native::reciprocal_stub)}};
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

PlainKernel binary_kernel(std::string_view name) {
  static const Table<PlainKernel> table{{"mul", chosen(native::mul_stub)},
                                        {"div", chosen(native::div_true_stub)},
                                        {"maximum", chosen(native::maximum_stub)},
                                        {"minimum", chosen(native::minimum_stub)},
                                        {"tanh_backward", chosen(native::tanh_backward_stub)},
                                        {"sigmoid_backward", chosen(native::sigmoid_backward_stub)}};
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}

TensorIterator ternary(DirectCall& call) {
  return TensorIteratorConfig()
      .add_owned_output(call.out)
      .add_owned_const_input(call.tensor(0))
      .add_owned_const_input(call.tensor(1))
      .add_owned_const_input(call.tensor(2))
      .promote_inputs_to_common_dtype(true)
      .cast_common_dtype_to_outputs(true)
      .enforce_safe_casting_to_output(true)
      .allow_cpu_scalars(true)
      .build();
}

std::optional<Step> sums(DirectCall& call) {
  const bool minus = call.name == "sub";
  if ((!minus && call.name != "add") || !fits(call, {0}) || !call.has_scalar(2)) return std::nullopt;
  const bool number = call.has_scalar(1);
  if (!number && !fits(call, {1})) return std::nullopt;
  const at::Tensor other = number ? native::wrapped_scalar_tensor(call.constant(1).toScalar()) : call.tensor(1);
  const c10::Scalar alpha = minus ? -call.constant(2).toScalar() : call.constant(2).toScalar();
  TensorIterator iterator = TensorIterator::binary_op(call.out, call.tensor(0), other);
  if (number) {
    return with_operand(
        std::move(iterator), 1,
        [alpha, kernel = chosen(native::add_stub)](TensorIterator& each) { kernel(each, alpha); });
  }
  return with_number(
      std::move(iterator), 2, alpha,
      [kernel = chosen(native::add_stub)](TensorIterator& each, const c10::Scalar& weight) {
        kernel(each, weight);
      },
      minus ? -1 : 1);
}

std::optional<Step> fused_sums(DirectCall& call) {
  const bool quotient = call.name == "addcdiv";
  if ((!quotient && call.name != "addcmul") || !fits(call, {0, 1, 2}) || !call.has_scalar(3))
    return std::nullopt;
  if (quotient) {
    return with_number(ternary(call), 3, call.constant(3).toScalar(),
                       [kernel = chosen(native::addcdiv_stub)](
                           TensorIterator& each, const c10::Scalar& weight) { kernel(each, weight); });
  }
  return with_number(ternary(call), 3, call.constant(3).toScalar(),
                     [kernel = chosen(native::addcmul_stub)](TensorIterator& each, const c10::Scalar& weight) {
                       kernel(each, weight);
                     });
}

std::optional<Step> binary(DirectCall& call) {
  const PlainKernel kernel = binary_kernel(call.name);
  if (!kernel || call.op.in.size() != 2 || !fits(call, {0})) return std::nullopt;
  if (call.has_scalar(1)) {
    const at::Tensor number = native::wrapped_scalar_tensor(call.constant(1).toScalar());
    return with_operand(TensorIterator::binary_op(call.out, call.tensor(0), number), 1, kernel);
  }
  if (!fits(call, {1})) return std::nullopt;
  return over(TensorIterator::binary_op(call.out, call.tensor(0), call.tensor(1)), kernel);
}

std::optional<Step> activations(DirectCall& call) {
  if (call.name == "relu" && call.op.in.size() == 1 && fits(call, {0})) {
    return over(TensorIterator::unary_op(call.out, call.tensor(0)),
                [kernel = chosen(native::clamp_min_scalar_stub)](TensorIterator& each) { kernel(each, 0); });
  }
  if (call.name == "threshold_backward" && fits(call, {0, 1}) && call.has_scalar(2)) {
    TensorIterator iterator = TensorIteratorConfig()
                                  .set_check_mem_overlap(false)
                                  .add_owned_output(call.out)
                                  .add_owned_const_input(call.tensor(1))
                                  .add_owned_const_input(call.tensor(0))
                                  .allow_cpu_scalars(true)
                                  .promote_inputs_to_common_dtype(true)
                                  .cast_common_dtype_to_outputs(true)
                                  .enforce_safe_casting_to_output(true)
                                  .build();
    return over(std::move(iterator),
                [threshold = call.constant(2).toScalar(), kernel = chosen(native::threshold_stub)](
                    TensorIterator& each) { kernel(each, threshold, 0); });
  }
  if (call.name == "leaky_relu" && fits(call, {0}) && call.has_scalar(1)) {
    return over(TensorIterator::unary_op(call.out, call.tensor(0)),
                [slope = call.constant(1).toScalar(),
                 kernel = chosen(native::leaky_relu_stub)](TensorIterator& each) { kernel(each, slope); });
  }
  if (call.name == "leaky_relu_backward" && fits(call, {0, 1}) && call.has_scalar(2)) {
    return over(TensorIterator::binary_op(call.out, call.tensor(1), call.tensor(0)),
                [slope = call.constant(2).toScalar(), kernel = chosen(native::leaky_relu_backward_stub)](
                    TensorIterator& each) { kernel(each, slope); });
  }
  return std::nullopt;
}

// The factor is LibTorch's: twice the distance, by the mean over all elements or by their sum.
std::optional<Step> distance_backward(DirectCall& call) {
  if (call.name != "mse_loss_backward" || !fits(call, {0, 1, 2})) return std::nullopt;
  const bool mean = call.constant(3).toInt() == at::Reduction::Mean;
  const c10::Scalar factor = mean ? 2. / static_cast<double>(call.tensor(1).numel()) : 2.;
  TensorIterator iterator = TensorIteratorConfig()
                                .add_owned_output(call.out)
                                .add_owned_const_input(call.tensor(1))
                                .add_owned_const_input(call.tensor(2))
                                .add_owned_const_input(call.tensor(0))
                                .build();
  return over(std::move(iterator), [factor, kernel = chosen(native::mse_backward_stub)](TensorIterator& each) {
    kernel(each, factor);
  });
}

std::optional<Step> power(DirectCall& call) {
  if (call.name != "pow" || !fits(call, {0}) || !call.has_scalar(1)) return std::nullopt;
  const c10::Scalar exponent = call.constant(1).toScalar();
  if (exponent.equal(0) || exponent.equal(1)) return std::nullopt;
  return over(TensorIterator::unary_op(call.out, call.tensor(0)),
              [exponent, kernel = chosen(native::pow_tensor_scalar_stub)](TensorIterator& each) {
                kernel(each, exponent);
              });
}

}  // namespace

std::optional<Step> direct_elementwise(DirectCall& call) {
  if (const PlainKernel kernel = unary_kernel(call.name); kernel && call.op.in.size() == 1 && fits(call, {0})) {
    return over(TensorIterator::unary_op(call.out, call.tensor(0)), kernel);
  }
  for (const auto form : {binary, sums, fused_sums, activations, power, distance_backward}) {
    if (auto step = form(call)) return step;
  }
  return std::nullopt;
}

#else

std::optional<Step> direct_elementwise(DirectCall&) { return std::nullopt; }

#endif

}  // namespace overdrive::replay
