// Adagrad, Adamax, NAdam and RAdam as torch.optim makes them: their numbers depend on how many steps there
// were. Note [Optimizers of Python].
#include "replay/optimizers/python_update.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/abs_cpu_dispatch.h>
#include <ATen/ops/add_cpu_dispatch.h>
#include <ATen/ops/addcdiv_cpu_dispatch.h>
#include <ATen/ops/addcmul_cpu_dispatch.h>
#include <ATen/ops/div_cpu_dispatch.h>
#include <ATen/ops/lerp_cpu_dispatch.h>
#include <ATen/ops/maximum_cpu_dispatch.h>
#include <ATen/ops/mul_cpu_dispatch.h>
#include <ATen/ops/reciprocal_cpu_dispatch.h>
#include <ATen/ops/sqrt_cpu_dispatch.h>

#include <cmath>

namespace overdrive::replay {

namespace {

// PyTorch computes numbers in this order, and rounds after each operation.
void adagrad(at::TensorList parameters, at::TensorList gradients, at::TensorList sums, at::TensorList steps,
             const at::Tensor& numbers) {
  check_sizes(parameters, {gradients, sums, steps}, numbers, 4);
  const double* n = numbers.const_data_ptr<double>();
  const double rate = n[0], rate_decay = n[1], epsilon = n[2], decay = n[3];
  for (size_t i = 0; i < parameters.size(); ++i) {
    at::Tensor parameter = parameters[i], gradient = gradients[i], sum = sums[i];
    const double step = counted(steps[i]);
    if (decay != 0) gradient = at::cpu::add(gradient, parameter, decay);
    const double now = rate / (1 + (step - 1) * rate_decay);
    at::cpu::addcmul_(sum, gradient, gradient, 1);
    at::Tensor divisor = at::cpu::sqrt(sum);
    at::cpu::add_(divisor, number(epsilon), 1);
    at::cpu::addcdiv_(parameter, gradient, divisor, -now);
  }
}

void adamax(at::TensorList parameters, at::TensorList gradients, at::TensorList averages, at::TensorList norms,
            at::TensorList steps, const at::Tensor& numbers) {
  check_sizes(parameters, {gradients, averages, norms, steps}, numbers, 5);
  const double* n = numbers.const_data_ptr<double>();
  const double rate = n[0], beta1 = n[1], beta2 = n[2], epsilon = n[3], decay = n[4];
  for (size_t i = 0; i < parameters.size(); ++i) {
    at::Tensor parameter = parameters[i], gradient = gradients[i], average = averages[i], norm = norms[i];
    const double step = counted(steps[i]);
    if (decay != 0) gradient = at::cpu::add(gradient, parameter, decay);
    at::cpu::lerp_(average, gradient, 1 - beta1);
    at::cpu::mul_(norm, number(beta2));
    at::Tensor size = at::detail::empty_cpu({0}, gradient.options());
    at::cpu::abs_out(size, gradient);
    at::cpu::add_(size, number(epsilon), 1);
    at::cpu::maximum_out(norm, norm, size);
    at::cpu::addcdiv_(parameter, average, norm, -(rate / (1 - std::pow(beta1, step))));
  }
}

void nadam(at::TensorList parameters, at::TensorList gradients, at::TensorList averages, at::TensorList squares,
           at::TensorList products, at::TensorList steps, const at::Tensor& numbers) {
  check_sizes(parameters, {gradients, averages, squares, products, steps}, numbers, 7);
  const double* n = numbers.const_data_ptr<double>();
  const MomentNumbers given{n[0], n[1], n[2], n[3], n[4], n[5]};
  const double momentum_decay = n[6];
  const auto momentum_at = [&](double step) {
    return given.beta1 * (1.0 - 0.5 * std::pow(0.96, step * momentum_decay));
  };
  for (size_t i = 0; i < parameters.size(); ++i) {
    at::Tensor parameter = parameters[i], average = averages[i], square = squares[i], product = products[i];
    const double step = counted(steps[i]), momentum = momentum_at(step), next = momentum_at(step + 1);
    at::cpu::mul_(product, number(momentum));
    const at::Tensor gradient = update_averages(parameter, gradients[i], average, square, given);
    at::Tensor divisor = at::cpu::sqrt(at::cpu::div(square, number(1 - std::pow(given.beta2, step))));
    at::cpu::add_(divisor, number(given.epsilon), 1);
    const double so_far = read(product);
    at::cpu::addcdiv_(parameter, gradient, divisor, -given.rate * (1.0 - momentum) / (1.0 - so_far));
    at::cpu::addcdiv_(parameter, average, divisor, (-given.rate * next) / (1.0 - so_far * next));
  }
}

void radam(at::TensorList parameters, at::TensorList gradients, at::TensorList averages, at::TensorList squares,
           at::TensorList steps, const at::Tensor& numbers) {
  check_sizes(parameters, {gradients, averages, squares, steps}, numbers, 6);
  const double* n = numbers.const_data_ptr<double>();
  const MomentNumbers given{n[0], n[1], n[2], n[3], n[4], n[5]};
  const double longest = 2 / (1 - given.beta2) - 1;
  for (size_t i = 0; i < parameters.size(); ++i) {
    at::Tensor parameter = parameters[i], average = averages[i], square = squares[i];
    const double step = counted(steps[i]);
    update_averages(parameter, gradients[i], average, square, given);
    const double correction1 = 1 - std::pow(given.beta1, step), power = std::pow(given.beta2, step);
    const double correction2 = 1 - power, length = longest - 2 * step * power / correction2;
    at::Tensor update = at::cpu::mul(at::cpu::div(average, number(correction1)), number(given.rate));
    if (length > 5.0) {
      at::Tensor divisor = at::cpu::sqrt(square);
      at::cpu::add_(divisor, number(given.epsilon), 1);
      const at::Tensor factor = at::cpu::mul(at::cpu::reciprocal(divisor), number(std::pow(correction2, 0.5)));
      const double rectified =
          std::pow((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length), 0.5);
      update = at::cpu::mul(at::cpu::mul(update, factor), number(rectified));
    }
    at::cpu::add_(parameter, update, -1.0);
  }
}

}  // namespace

void define_updates_by_steps(torch::Library& library) {
  library.def(
      "adagrad_(Tensor(a!)[] parameters, Tensor[] gradients, Tensor(b!)[] sums, Tensor(c!)[] steps, "
      "Tensor numbers) -> ()");
  library.def(
      "adamax_(Tensor(a!)[] parameters, Tensor[] gradients, Tensor(b!)[] averages, Tensor(c!)[] norms, "
      "Tensor(d!)[] steps, Tensor numbers) -> ()");
  library.def(
      "nadam_(Tensor(a!)[] parameters, Tensor[] gradients, Tensor(b!)[] averages, Tensor(c!)[] squares, "
      "Tensor(d!)[] products, Tensor(e!)[] steps, Tensor numbers) -> ()");
  library.def(
      "radam_(Tensor(a!)[] parameters, Tensor[] gradients, Tensor(b!)[] averages, Tensor(c!)[] squares, "
      "Tensor(d!)[] steps, Tensor numbers) -> ()");
  library.impl("adagrad_", torch::dispatch(c10::DispatchKey::CPU, &adagrad));
  library.impl("adamax_", torch::dispatch(c10::DispatchKey::CPU, &adamax));
  library.impl("nadam_", torch::dispatch(c10::DispatchKey::CPU, &nadam));
  library.impl("radam_", torch::dispatch(c10::DispatchKey::CPU, &radam));
}

}  // namespace overdrive::replay
