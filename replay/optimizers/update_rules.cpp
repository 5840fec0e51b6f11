#include "replay/optimizers/update_rules.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <typeinfo>

namespace overdrive::replay {

namespace {

using namespace torch::optim;

using Update = std::vector<UpdateOperator>;

UpdateOperator with(std::string_view name, double number) { return {name, true, number}; }
UpdateOperator plain(std::string_view name) { return {.name = name}; }

Update sgd(const SGDOptions& options) {
  Update update;
  if (options.weight_decay() != 0) update.push_back(with("aten::add", options.weight_decay()));
  if (options.momentum() != 0) {
    update.push_back(with("aten::mul_", options.momentum()));
    update.push_back(with("aten::add_", 1 - options.dampening()));
    if (options.nesterov()) update.push_back(with("aten::add", options.momentum()));
  }
  update.push_back(with("aten::add_", -1 * options.lr()));
  return update;
}

// The moments, in Adam and AdamW alike.
template <typename Options>
void add_moments(Update& update, const Options& options, int64_t step) {
  const auto [beta1, beta2] = options.betas();
  const double correction1 = 1 - std::pow(beta1, step), correction2 = 1 - std::pow(beta2, step);
  update.push_back(with("aten::mul_", beta1));
  update.push_back(with("aten::add_", 1 - beta1));
  update.push_back(with("aten::mul_", beta2));
  update.push_back(with("aten::addcmul_", 1 - beta2));
  if (options.amsgrad()) update.push_back(plain("aten::maximum"));
  update.push_back(plain("aten::sqrt"));
  update.push_back(with("aten::div", std::sqrt(correction2)));
  update.push_back(with("aten::add_", options.eps()));
  update.push_back(with("aten::addcdiv_", -(options.lr() / correction1)));
}

Update adam(const AdamOptions& options, int64_t step) {
  Update update;
  if (options.weight_decay() != 0) update.push_back(with("aten::add", options.weight_decay()));
  add_moments(update, options, step);
  return update;
}

Update adamw(const AdamWOptions& options, int64_t step) {
  Update update;
  if (options.weight_decay() != 0)
    update.push_back(with("aten::mul_", 1 - options.lr() * options.weight_decay()));
  add_moments(update, options, step);
  return update;
}

Update rms_prop(const RMSpropOptions& options) {
  Update update;
  if (options.weight_decay() != 0) update.push_back(with("aten::add", options.weight_decay()));
  update.push_back(with("aten::mul_", options.alpha()));
  update.push_back(with("aten::addcmul_", 1 - options.alpha()));
  if (options.centered()) {
    update.push_back(with("aten::mul_", options.alpha()));
    update.push_back(with("aten::add_", 1 - options.alpha()));
    update.push_back(plain("aten::addcmul"));
    update.push_back(plain("aten::sqrt_"));
  } else {
    update.push_back(plain("aten::sqrt"));
  }
  update.push_back(with("aten::add_", options.eps()));
  if (options.momentum() > 0) {
    update.push_back(with("aten::mul_", options.momentum()));
    update.push_back(plain("aten::addcdiv_"));
    update.push_back(with("aten::add_", -options.lr()));
  } else {
    update.push_back(with("aten::addcdiv_", -options.lr()));
  }
  return update;
}

Update adagrad(const AdagradOptions& options, int64_t step) {
  Update update;
  if (options.weight_decay() != 0) update.push_back(with("aten::add", options.weight_decay()));
  update.push_back(plain("aten::addcmul_"));
  update.push_back(plain("aten::sqrt"));
  update.push_back(with("aten::add_", options.eps()));
  const double rate = options.lr() / (1 + static_cast<double>(step - 1) * options.lr_decay());
  update.push_back(with("aten::addcdiv_", -rate));
  return update;
}

}  // namespace

OptimizerKind kind_of(const Optimizer& optimizer) {
  const std::type_info& type = typeid(optimizer);
  if (type == typeid(SGD)) return OptimizerKind::kSgd;
  if (type == typeid(Adam)) return OptimizerKind::kAdam;
  if (type == typeid(AdamW)) return OptimizerKind::kAdamW;
  if (type == typeid(RMSprop)) return OptimizerKind::kRmsProp;
  if (type == typeid(Adagrad)) return OptimizerKind::kAdagrad;
  return OptimizerKind::kUnknown;
}

Update update_of(OptimizerKind kind, const OptimizerOptions& options, int64_t step) {
  switch (kind) {
    case OptimizerKind::kUnknown:
      return {};
    case OptimizerKind::kSgd:
      return sgd(static_cast<const SGDOptions&>(options));
    case OptimizerKind::kAdam:
      return adam(static_cast<const AdamOptions&>(options), step);
    case OptimizerKind::kAdamW:
      return adamw(static_cast<const AdamWOptions&>(options), step);
    case OptimizerKind::kRmsProp:
      return rms_prop(static_cast<const RMSpropOptions&>(options));
    case OptimizerKind::kAdagrad:
      return adagrad(static_cast<const AdagradOptions&>(options), step);
  }
  return {};
}

namespace {

// Visits the tensors of a parameter's state, in a fixed order. Stops at the first visit that returns false, and
// returns false then.
template <typename Visit>
bool each_tensor(OptimizerKind kind, const OptimizerParamState& state, const Visit& visit) {
  const auto moments = [&](const auto& typed) {
    return visit(typed.exp_avg()) && visit(typed.exp_avg_sq()) && visit(typed.max_exp_avg_sq());
  };
  switch (kind) {
    case OptimizerKind::kUnknown:
      return true;
    case OptimizerKind::kSgd:
      return visit(static_cast<const SGDParamState&>(state).momentum_buffer());
    case OptimizerKind::kAdam:
      return moments(static_cast<const AdamParamState&>(state));
    case OptimizerKind::kAdamW:
      return moments(static_cast<const AdamWParamState&>(state));
    case OptimizerKind::kRmsProp: {
      const auto& typed = static_cast<const RMSpropParamState&>(state);
      return visit(typed.square_avg()) && visit(typed.momentum_buffer()) && visit(typed.grad_avg());
    }
    case OptimizerKind::kAdagrad:
      return visit(static_cast<const AdagradParamState&>(state).sum());
  }
  return true;
}

}  // namespace

std::vector<const c10::TensorImpl*> tensors_of(OptimizerKind kind, const OptimizerParamState& state) {
  std::vector<const c10::TensorImpl*> result;
  each_tensor(kind, state, [&](const at::Tensor& tensor) {
    result.push_back(tensor.unsafeGetTensorImpl());
    return true;
  });
  return result;
}

bool has_tensors(OptimizerKind kind, const OptimizerParamState& state,
                 const std::vector<const c10::TensorImpl*>& tensors) {
  size_t place = 0;
  return each_tensor(kind, state, [&](const at::Tensor& tensor) {
    return place < tensors.size() && tensors[place++] == tensor.unsafeGetTensorImpl();
  });
}

int64_t steps_of(OptimizerKind kind, const OptimizerParamState& state) {
  switch (kind) {
    case OptimizerKind::kAdam:
      return static_cast<const AdamParamState&>(state).step();
    case OptimizerKind::kAdamW:
      return static_cast<const AdamWParamState&>(state).step();
    case OptimizerKind::kRmsProp:
      return static_cast<const RMSpropParamState&>(state).step();
    case OptimizerKind::kAdagrad:
      return static_cast<const AdagradParamState&>(state).step();
    default:
      return 0;
  }
}

void set_steps(OptimizerKind kind, OptimizerParamState& state, int64_t steps) {
  switch (kind) {
    case OptimizerKind::kAdam:
      static_cast<AdamParamState&>(state).step(steps);
      return;
    case OptimizerKind::kAdamW:
      static_cast<AdamWParamState&>(state).step(steps);
      return;
    case OptimizerKind::kRmsProp:
      static_cast<RMSpropParamState&>(state).step(steps);
      return;
    case OptimizerKind::kAdagrad:
      static_cast<AdagradParamState&>(state).step(steps);
      return;
    default:
      return;
  }
}

}  // namespace overdrive::replay
