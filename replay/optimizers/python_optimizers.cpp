#include "replay/optimizers/python_optimizers.h"

#include "engine/base/no_destructor.h"
#include "replay/optimizers/python_update.h"

#include <ATen/ScalarOps.h>
#include <ATen/ops/_fused_adam_cpu_dispatch.h>
#include <ATen/ops/_fused_adamw_cpu_dispatch.h>
#include <ATen/ops/add_cpu_dispatch.h>

#include <cmath>

namespace overdrive::replay {

namespace {

using Value = ElementChain::Value;

// Note [Optimizers of Python]
// torch.optim computes with numbers of the program, which a recording cannot follow: a learning rate, and what
// Adam makes of a step count that it reads by item(). An operator of ours makes the same update out of tensors,
// with the same operators in the same order (direct/element_chain.h): `numbers` holds the options, which the
// package writes before every call, and the step counts stay the optimizer's own tensors. Whoever records
// compares each update with PyTorch's, bit by bit.

struct SgdNumbers {
  double rate, momentum, dampening, decay, nesterov;
};

void sgd(at::TensorList parameters, at::TensorList gradients, at::TensorList buffers,
         const at::Tensor& numbers) {
  check_sizes(parameters, {gradients}, numbers, 5);
  const double* n = numbers.const_data_ptr<double>();
  const SgdNumbers given{n[0], n[1], n[2], n[3], n[4]};
  if (given.momentum != 0) check_sizes(parameters, {buffers}, numbers, 5);
  ElementChain chain;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Value parameter = chain.of(parameters[i]);
    Value gradient = with_decay(chain, chain.of(gradients[i]), parameter, given.decay);
    if (given.momentum != 0) {
      const Value buffer = chain.of(buffers[i]);
      chain.multiply_number(buffer, buffer, given.momentum);
      chain.add(buffer, buffer, gradient, 1 - given.dampening);
      if (given.nesterov != 0) {
        const Value ahead = chain.room();
        chain.add(ahead, gradient, buffer, given.momentum);
        gradient = ahead;
      } else {
        gradient = buffer;
      }
    }
    chain.add(parameter, parameter, gradient, -given.rate);
    chain.run();
  }
}

void adam(at::TensorList parameters, at::TensorList gradients, at::TensorList averages, at::TensorList squares,
          at::TensorList greatest, at::TensorList steps, const at::Tensor& numbers) {
  check_sizes(parameters, {gradients, averages, squares, steps}, numbers, 6);
  if (!greatest.empty()) check_sizes(parameters, {greatest}, numbers, 6);
  const double* n = numbers.const_data_ptr<double>();
  const MomentNumbers given{n[0], n[1], n[2], n[3], n[4], n[5]};
  ElementChain chain;
  // The parameters have made the same steps as a rule.
  double last = -1, correction1 = 0, root = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const double count = counted(steps[i]);
    if (count != last) {
      last = count;
      correction1 = 1 - std::pow(given.beta1, count);
      root = std::pow(1 - std::pow(given.beta2, count), 0.5);
    }
    const Value parameter = chain.of(parameters[i]), average = chain.of(averages[i]);
    Value square = chain.of(squares[i]);
    note_averages(chain, parameter, chain.of(gradients[i]), average, square, given);
    if (!greatest.empty()) {
      const Value most = chain.of(greatest[i]);
      chain.maximum(most, most, square);
      square = most;
    }
    const Value divisor = chain.room();
    chain.sqrt(divisor, square);
    chain.divide_number(divisor, divisor, root);
    chain.add_number(divisor, divisor, given.epsilon);
    chain.addcdiv(parameter, average, divisor, -(given.rate / correction1));
    chain.run();
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

double counted(const at::Tensor& step) {
  if (step.numel() == 1 && step.scalar_type() == at::kFloat) return *step.mutable_data_ptr<float>() += 1;
  at::Tensor counter = step;
  at::cpu::add_(counter, at::native::wrapped_scalar_tensor(1.), 1);
  return read(step);
}

Value with_decay(ElementChain& chain, Value gradient, Value parameter, double decay) {
  if (decay == 0) return gradient;
  const Value sum = chain.room();
  chain.add(sum, gradient, parameter, decay);
  return sum;
}

Value note_averages(ElementChain& chain, Value parameter, Value gradient, Value average, Value square,
                    const MomentNumbers& given) {
  if (given.decay != 0 && given.decoupled != 0) {
    chain.multiply_number(parameter, parameter, 1 - given.rate * given.decay);
  } else {
    gradient = with_decay(chain, gradient, parameter, given.decay);
  }
  chain.lerp(average, gradient, 1 - given.beta1);
  chain.multiply_number(square, square, given.beta2);
  chain.addcmul(square, gradient, gradient, 1 - given.beta2);
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
