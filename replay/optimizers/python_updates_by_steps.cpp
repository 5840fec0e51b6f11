// Adagrad, Adamax, NAdam and RAdam as torch.optim makes them: their numbers depend on how many steps there
// were. Note [Optimizers of Python].
#include "replay/optimizers/python_update.h"

#include <cmath>

namespace overdrive::replay {

namespace {

using Value = ElementChain::Value;

// PyTorch computes numbers in this order, and rounds after each operation.
void adagrad(at::TensorList parameters, at::TensorList gradients, at::TensorList sums, at::TensorList steps,
             const at::Tensor& numbers) {
  check_sizes(parameters, {gradients, sums, steps}, numbers, 4);
  const double* n = numbers.const_data_ptr<double>();
  const double rate = n[0], rate_decay = n[1], epsilon = n[2], decay = n[3];
  ElementChain chain;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const double now = rate / (1 + (counted(steps[i]) - 1) * rate_decay);
    const Value parameter = chain.of(parameters[i]), sum = chain.of(sums[i]);
    const Value gradient = with_decay(chain, chain.of(gradients[i]), parameter, decay), divisor = chain.room();
    chain.addcmul(sum, gradient, gradient, 1);
    chain.sqrt(divisor, sum);
    chain.add_number(divisor, divisor, epsilon);
    chain.addcdiv(parameter, gradient, divisor, -now);
    chain.run();
  }
}

void adamax(at::TensorList parameters, at::TensorList gradients, at::TensorList averages, at::TensorList norms,
            at::TensorList steps, const at::Tensor& numbers) {
  check_sizes(parameters, {gradients, averages, norms, steps}, numbers, 5);
  const double* n = numbers.const_data_ptr<double>();
  const double rate = n[0], beta1 = n[1], beta2 = n[2], epsilon = n[3], decay = n[4];
  ElementChain chain;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const double step = counted(steps[i]);
    const Value parameter = chain.of(parameters[i]), average = chain.of(averages[i]), norm = chain.of(norms[i]);
    const Value gradient = with_decay(chain, chain.of(gradients[i]), parameter, decay), size = chain.room();
    chain.lerp(average, gradient, 1 - beta1);
    chain.multiply_number(norm, norm, beta2);
    chain.abs(size, gradient);
    chain.add_number(size, size, epsilon);
    chain.maximum(norm, norm, size);
    chain.addcdiv(parameter, average, norm, -(rate / (1 - std::pow(beta1, step))));
    chain.run();
  }
}

// The product of all momenta so far, which the optimizer keeps in a tensor.
double multiplied(const at::Tensor& product, double momentum) {
  ElementChain chain;
  const Value value = chain.of(product);
  chain.multiply_number(value, value, momentum);
  chain.run();
  return read(product);
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
  ElementChain chain;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const double step = counted(steps[i]), momentum = momentum_at(step), next = momentum_at(step + 1);
    const double so_far = multiplied(products[i], momentum);
    const Value parameter = chain.of(parameters[i]), average = chain.of(averages[i]),
                square = chain.of(squares[i]);
    const Value gradient = note_averages(chain, parameter, chain.of(gradients[i]), average, square, given);
    const Value divisor = chain.room();
    chain.divide_number(divisor, square, 1 - std::pow(given.beta2, step));
    chain.sqrt(divisor, divisor);
    chain.add_number(divisor, divisor, given.epsilon);
    chain.addcdiv(parameter, gradient, divisor, -given.rate * (1.0 - momentum) / (1.0 - so_far));
    chain.addcdiv(parameter, average, divisor, (-given.rate * next) / (1.0 - so_far * next));
    chain.run();
  }
}

void radam(at::TensorList parameters, at::TensorList gradients, at::TensorList averages, at::TensorList squares,
           at::TensorList steps, const at::Tensor& numbers) {
  check_sizes(parameters, {gradients, averages, squares, steps}, numbers, 6);
  const double* n = numbers.const_data_ptr<double>();
  const MomentNumbers given{n[0], n[1], n[2], n[3], n[4], n[5]};
  const double longest = 2 / (1 - given.beta2) - 1;
  ElementChain chain;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const double step = counted(steps[i]);
    const Value parameter = chain.of(parameters[i]), average = chain.of(averages[i]),
                square = chain.of(squares[i]);
    note_averages(chain, parameter, chain.of(gradients[i]), average, square, given);
    const double correction1 = 1 - std::pow(given.beta1, step), power = std::pow(given.beta2, step);
    const double correction2 = 1 - power, length = longest - 2 * step * power / correction2;
    const Value update = chain.room();
    chain.divide_number(update, average, correction1);
    chain.multiply_number(update, update, given.rate);
    if (length > 5.0) {
      const double rectified =
          std::pow((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length), 0.5);
      const Value factor = chain.room();
      chain.sqrt(factor, square);
      chain.add_number(factor, factor, given.epsilon);
      chain.reciprocal(factor, factor);
      chain.multiply_number(factor, factor, std::pow(correction2, 0.5));
      chain.multiply(update, update, factor);
      chain.multiply_number(update, update, rectified);
    }
    chain.add(parameter, parameter, update, -1.0);
    chain.run();
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
