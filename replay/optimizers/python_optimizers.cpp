#include "replay/optimizers/python_optimizers.h"

#include "engine/base/no_destructor.h"
#include "replay/optimizers/python_update.h"

#include <ATen/ops/_fused_adam_cpu_dispatch.h>
#include <ATen/ops/_fused_adamw_cpu_dispatch.h>
#include <ATen/ops/add_cpu_dispatch.h>
#include <ATen/ops/addcdiv_cpu_dispatch.h>
#include <ATen/ops/addcmul_cpu_dispatch.h>
#include <ATen/ops/div_cpu_dispatch.h>
#include <ATen/ops/lerp_cpu_dispatch.h>
#include <ATen/ops/maximum_cpu_dispatch.h>
#include <ATen/ops/mul_cpu_dispatch.h>
#include <ATen/ops/sqrt_cpu_dispatch.h>

#include <cmath>

namespace overdrive::replay {

namespace {

// Note [Optimizers of Python]
// torch.optim computes with numbers of the program, which a recording cannot follow: a learning rate, and what
// Adam makes of a step count that it reads by item(). An operator of ours makes the same update, with the same
// operators below it, out of tensors: `numbers` holds the options, which the package writes before every call,
// and the step counts stay the optimizer's own tensors. Whoever records compares each update with PyTorch's,
// bit by bit.

struct SgdNumbers {
  double rate, momentum, dampening, decay, nesterov;
};

void sgd(at::TensorList parameters, at::TensorList gradients, at::TensorList buffers,
         const at::Tensor& numbers) {
  check_sizes(parameters, {gradients}, numbers, 5);
  const double* n = numbers.const_data_ptr<double>();
  const SgdNumbers given{n[0], n[1], n[2], n[3], n[4]};
  if (given.momentum != 0) check_sizes(parameters, {buffers}, numbers, 5);
  for (size_t i = 0; i < parameters.size(); ++i) {
    at::Tensor parameter = parameters[i], gradient = gradients[i];
    if (given.decay != 0) gradient = at::cpu::add(gradient, parameter, given.decay);
    if (given.momentum != 0) {
      at::Tensor buffer = buffers[i];
      at::cpu::mul_(buffer, number(given.momentum));
      at::cpu::add_(buffer, gradient, 1 - given.dampening);
      gradient = given.nesterov != 0 ? at::cpu::add(gradient, buffer, given.momentum) : buffer;
    }
    at::cpu::add_(parameter, gradient, -given.rate);
  }
}

void adam_update(at::Tensor parameter, at::Tensor gradient, at::Tensor average, at::Tensor square,
                 at::Tensor greatest, at::Tensor step, const MomentNumbers& given) {
  const double count = counted(step);
  update_averages(parameter, gradient, average, square, given);
  const double correction1 = 1 - std::pow(given.beta1, count), correction2 = 1 - std::pow(given.beta2, count);
  if (greatest.defined()) at::cpu::maximum_out(greatest, greatest, square);
  at::Tensor divisor =
      at::cpu::div(at::cpu::sqrt(greatest.defined() ? greatest : square), number(std::pow(correction2, 0.5)));
  at::cpu::add_(divisor, number(given.epsilon), 1);
  at::cpu::addcdiv_(parameter, average, divisor, -(given.rate / correction1));
}

void adam(at::TensorList parameters, at::TensorList gradients, at::TensorList averages, at::TensorList squares,
          at::TensorList greatest, at::TensorList steps, const at::Tensor& numbers) {
  check_sizes(parameters, {gradients, averages, squares, steps}, numbers, 6);
  if (!greatest.empty()) check_sizes(parameters, {greatest}, numbers, 6);
  const double* n = numbers.const_data_ptr<double>();
  const MomentNumbers given{n[0], n[1], n[2], n[3], n[4], n[5]};
  for (size_t i = 0; i < parameters.size(); ++i) {
    adam_update(parameters[i], gradients[i], averages[i], squares[i],
                greatest.empty() ? at::Tensor() : greatest[i], steps[i], given);
  }
}

// LibTorch's own kernels, each for one parameter. Negated gradients are what `maximize` makes of them.
void fused_adam(at::TensorList parameters, at::TensorList gradients, at::TensorList averages,
                at::TensorList squares, at::TensorList greatest, at::TensorList steps,
                const at::Tensor& numbers) {
  check_sizes(parameters, {gradients, averages, squares, steps}, numbers, 6);
  if (!greatest.empty()) check_sizes(parameters, {greatest}, numbers, 6);
  const double* n = numbers.const_data_ptr<double>();
  const MomentNumbers given{n[0], n[1], n[2], n[3], n[4], n[5]};
  using Kernel = void(at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                      at::TensorList, double, double, double, double, double, bool, bool,
                      const std::optional<at::Tensor>&, const std::optional<at::Tensor>&);
  Kernel* const kernel = given.decoupled != 0 ? static_cast<Kernel*>(&at::cpu::_fused_adamw_)
                                              : static_cast<Kernel*>(&at::cpu::_fused_adam_);
  for (size_t i = 0; i < parameters.size(); ++i) {
    (void)counted(steps[i]);
    kernel(parameters.slice(i, 1), gradients.slice(i, 1), averages.slice(i, 1), squares.slice(i, 1),
           greatest.empty() ? greatest : greatest.slice(i, 1), steps.slice(i, 1), given.rate, given.beta1,
           given.beta2, given.decay, given.epsilon, !greatest.empty(), /*maximize=*/false, std::nullopt,
           std::nullopt);
  }
}

}  // namespace

double counted(at::Tensor step) {
  at::cpu::add_(step, number(1), 1);
  return read(step);
}

at::Tensor update_averages(at::Tensor parameter, at::Tensor gradient, at::Tensor average, at::Tensor square,
                           const MomentNumbers& given) {
  if (given.decay != 0) {
    if (given.decoupled != 0) {
      at::cpu::mul_(parameter, number(1 - given.rate * given.decay));
    } else {
      gradient = at::cpu::add(gradient, parameter, given.decay);
    }
  }
  at::cpu::lerp_(average, gradient, 1 - given.beta1);
  at::cpu::mul_(square, number(given.beta2));
  at::cpu::addcmul_(square, gradient, gradient, 1 - given.beta2);
  return gradient;
}

void define_python_optimizers() {
  // The small library of step files has them, too.
  if (c10::Dispatcher::singleton().findSchema({"overdrive::adam_", ""})) return;
  static const base::NoDestructor<torch::Library> library([] {
    torch::Library made(torch::Library::FRAGMENT, "overdrive", std::nullopt, __FILE__, __LINE__);
    made.def("sgd_(Tensor(a!)[] parameters, Tensor[] gradients, Tensor(b!)[] buffers, Tensor numbers) -> ()");
    made.def(
        "adam_(Tensor(a!)[] parameters, Tensor[] gradients, Tensor(b!)[] averages, Tensor(c!)[] squares, "
        "Tensor(d!)[] greatest, Tensor(e!)[] steps, Tensor numbers) -> ()");
    made.def(
        "fused_adam_(Tensor(a!)[] parameters, Tensor[] gradients, Tensor(b!)[] averages, Tensor(c!)[] squares, "
        "Tensor(d!)[] greatest, Tensor(e!)[] steps, Tensor numbers) -> ()");
    made.impl("fused_adam_", torch::dispatch(c10::DispatchKey::CPU, &fused_adam));
    made.impl("sgd_", torch::dispatch(c10::DispatchKey::CPU, &sgd));
    made.impl("adam_", torch::dispatch(c10::DispatchKey::CPU, &adam));
    define_updates_by_steps(made);
    // Version counters are the caller's to raise, as often as PyTorch's update does.
    for (const char* name : {"sgd_", "adam_", "fused_adam_", "adagrad_", "adamax_", "nadam_", "radam_"}) {
      for (const auto key : {c10::DispatchKey::AutogradCPU, c10::DispatchKey::ADInplaceOrView}) {
        made.impl(name, torch::dispatch(key, torch::CppFunction::makeFallthrough()));
      }
    }
    return made;
  }());
}

}  // namespace overdrive::replay
