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

template <typename Kernel>
class KernelStep final : public Step::State {
 public:
  KernelStep(TensorIterator iterator, Kernel kernel) : iterator_(std::move(iterator)), kernel_(kernel) {}
  static void run(Step::State& state) {
    auto& self = static_cast<KernelStep&>(state);
    self.kernel_(self.iterator_);
  }

 private:
  TensorIterator iterator_;
  const Kernel kernel_;
};

template <typename Kernel>
Step over(TensorIterator iterator, Kernel kernel) {
  using State = KernelStep<Kernel>;
  return Step(&State::run, std::make_unique<State>(std::move(iterator), kernel));
}

// With a number that the kernel is given in every run.
template <typename Kernel>
class NumberStep final : public Step::State {
 public:
  NumberStep(TensorIterator iterator, size_t argument, c10::Scalar number, double sign, Kernel kernel)
      : iterator_(std::move(iterator)),
        argument_(argument),
        number_(std::move(number)),
        sign_(sign),
        kernel_(kernel) {}
  static void run(Step::State& state) {
    auto& self = static_cast<NumberStep&>(state);
    self.kernel_(self.iterator_, self.number_);
  }
  bool set_number(size_t argument, double value) override {
    if (argument != argument_) return false;
    number_ = c10::Scalar(sign_ * value);
    return true;
  }

 private:
  TensorIterator iterator_;
  const size_t argument_;
  c10::Scalar number_;
  const double sign_;
  const Kernel kernel_;
};

template <typename Kernel>
Step with_number(TensorIterator iterator, size_t argument, c10::Scalar number, Kernel kernel, double sign = 1) {
  using State = NumberStep<Kernel>;
  return Step(&State::run,
              std::make_unique<State>(std::move(iterator), argument, std::move(number), sign, kernel));
}

// With a number as the second operand: the iterator has it in memory, in the type of the computation.
template <typename Kernel>
class OperandStep final : public Step::State {
 public:
  OperandStep(TensorIterator iterator, size_t argument, Kernel kernel)
      : iterator_(std::move(iterator)), argument_(argument), kernel_(kernel) {}
  static void run(Step::State& state) {
    auto& self = static_cast<OperandStep&>(state);
    self.kernel_(self.iterator_);
  }
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
  TensorIterator iterator_;
  const size_t argument_;
  const Kernel kernel_;
};

template <typename Kernel>
Step with_operand(TensorIterator iterator, size_t argument, Kernel kernel) {
  using State = OperandStep<Kernel>;
  return Step(&State::run, std::make_unique<State>(std::move(iterator), argument, kernel));
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
