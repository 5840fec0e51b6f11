#include "replay/file/stored_optimizer.h"

#include "engine/base/no_destructor.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cmath>

namespace overdrive::replay {

namespace {

using namespace torch::optim;

OptimizerKind kind_of(const StoredOptimizer& optimizer) { return static_cast<OptimizerKind>(optimizer.kind); }

template <typename Options>
std::vector<double> numbers_of_adam(const OptimizerOptions& options) {
  const auto& given = static_cast<const Options&>(options);
  const auto [beta1, beta2] = given.betas();
  return {given.lr(), beta1, beta2, given.eps(), given.weight_decay(), given.amsgrad() ? 1.0 : 0.0};
}

template <typename Options>
std::unique_ptr<OptimizerOptions> adam_of(const std::vector<double>& n) {
  auto options = std::make_unique<Options>(n[0]);
  options->betas({n[1], n[2]}).eps(n[3]).weight_decay(n[4]).amsgrad(n[5] != 0);
  return options;
}

std::unique_ptr<OptimizerOptions> options_of(OptimizerKind kind, const std::vector<double>& n) {
  switch (kind) {
    case OptimizerKind::kSgd: {
      auto options = std::make_unique<SGDOptions>(n[0]);
      options->momentum(n[1]).dampening(n[2]).weight_decay(n[3]).nesterov(n[4] != 0);
      return options;
    }
    case OptimizerKind::kAdam:
      return adam_of<AdamOptions>(n);
    case OptimizerKind::kAdamW:
      return adam_of<AdamWOptions>(n);
    case OptimizerKind::kRmsProp: {
      auto options = std::make_unique<RMSpropOptions>(n[0]);
      options->alpha(n[1]).eps(n[2]).weight_decay(n[3]).momentum(n[4]).centered(n[5] != 0);
      return options;
    }
    case OptimizerKind::kAdagrad: {
      auto options = std::make_unique<AdagradOptions>(n[0]);
      options->lr_decay(n[1]).eps(n[2]).weight_decay(n[3]);
      return options;
    }
    default:
      TORCH_CHECK(false, "an optimizer is of no known class.");
  }
}

}  // namespace

std::vector<double> numbers_of_options(OptimizerKind kind, const OptimizerOptions& options) {
  switch (kind) {
    case OptimizerKind::kSgd: {
      const auto& sgd = static_cast<const SGDOptions&>(options);
      return {sgd.lr(), sgd.momentum(), sgd.dampening(), sgd.weight_decay(), sgd.nesterov() ? 1.0 : 0.0};
    }
    case OptimizerKind::kAdam:
      return numbers_of_adam<AdamOptions>(options);
    case OptimizerKind::kAdamW:
      return numbers_of_adam<AdamWOptions>(options);
    case OptimizerKind::kRmsProp: {
      const auto& rms = static_cast<const RMSpropOptions&>(options);
      return {rms.lr(), rms.alpha(), rms.eps(), rms.weight_decay(), rms.momentum(), rms.centered() ? 1.0 : 0.0};
    }
    case OptimizerKind::kAdagrad: {
      const auto& ada = static_cast<const AdagradOptions&>(options);
      return {ada.lr(), ada.lr_decay(), ada.eps(), ada.weight_decay()};
    }
    default:
      return {};
  }
}

const std::vector<std::string>& names_of_options(OptimizerKind kind) {
  using Names = std::vector<std::string>;
  static base::NoDestructor<Names> none, sgd(Names{"lr", "momentum", "dampening", "weight_decay", "nesterov"}),
      adam(Names{"lr", "beta1", "beta2", "eps", "weight_decay", "amsgrad"}),
      rms(Names{"lr", "alpha", "eps", "weight_decay", "momentum", "centered"}),
      adagrad(Names{"lr", "lr_decay", "eps", "weight_decay"});
  switch (kind) {
    case OptimizerKind::kSgd:
      return *sgd;
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      return *adam;
    case OptimizerKind::kRmsProp:
      return *rms;
    case OptimizerKind::kAdagrad:
      return *adagrad;
    default:
      return *none;
  }
}

void check_optimizer(const StoredOptimizer& optimizer) {
  TORCH_CHECK(optimizer.kind <= static_cast<uint8_t>(OptimizerKind::kAdagrad) &&
                  kind_of(optimizer) != OptimizerKind::kUnknown,
              "an optimizer is of no known class.");
  for (const std::vector<double>& group : optimizer.groups)
    TORCH_CHECK(group.size() == names_of_options(kind_of(optimizer)).size(), "an optimizer lacks options.");
  for (const auto& parameter : optimizer.parameters) {
    TORCH_CHECK(parameter.group < optimizer.groups.size(), "a group of an optimizer does not exist.");
    TORCH_CHECK(parameter.steps >= 0 && parameter.steps < (int64_t{1} << 53),
                "an optimizer has a wrong count.");
  }
}

std::vector<UpdateOperator> numbers_of_update(const StoredOptimizer& optimizer, uint32_t group, int64_t step) {
  return update_of(kind_of(optimizer), *options_of(kind_of(optimizer), optimizer.groups[group]), step);
}

// Parameters of a group are as a rule at the same step, so that one computation serves them all.
template <typename Visit>
void UpdatesOfRun::each_number(const Visit& visit) const {
  std::vector<UpdateOperator> numbers;
  const StoredOptimizer::Parameter* computed = nullptr;
  size_t computed_of = optimizers_.size();
  size_t place = 0;
  for (const StoredUpdate& update : updates_) {
    const StoredOptimizer& optimizer = optimizers_[update.optimizer];
    const auto& parameter = optimizer.parameters[update.parameter];
    if (computed_of != update.optimizer || computed->group != parameter.group ||
        computed->steps != parameter.steps) {
      numbers = numbers_of_update(optimizer, parameter.group, parameter.steps + 1);
      computed = &parameter;
      computed_of = update.optimizer;
    }
    for (const StoredUse& each : update.uses) {
      TORCH_CHECK(each.in_update < numbers.size() && numbers[each.in_update].has_number,
                  "an optimizer's options ask for other operators than the program has.");
      visit(place++, each, numbers[each.in_update].number);
    }
  }
}

UpdatesOfRun::UpdatesOfRun(std::vector<StoredOptimizer>& optimizers, const std::vector<StoredUpdate>& updates)
    : optimizers_(optimizers), updates_(updates), ranges_(optimizers.size(), {INT32_MAX, -1}) {
  for (const StoredUpdate& update : updates) {
    auto& [first, last] = ranges_[update.optimizer];
    for (const StoredUse& use : update.uses) {
      first = std::min(first, use.op);
      last = std::max(last, use.op);
    }
  }
}

bool UpdatesOfRun::is_update(size_t op) const {
  const auto number = static_cast<int32_t>(op);
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [&](const auto& range) { return range.first <= number && number <= range.second; });
}

void UpdatesOfRun::declare(ReplayRun& run) const {
  each_number([&](size_t, const StoredUse& use, double number) {
    run.state_of(use.op).set_number(use.argument, number);
    run.declare_number(use.op, use.argument, number);
  });
}

void UpdatesOfRun::bind(ReplayRun& run) {
  states_.clear();
  for (const StoredUpdate& update : updates_) {
    for (const StoredUse& use : update.uses) states_.push_back(&run.state_of(use.op));
  }
}

void UpdatesOfRun::set_for_next_step() const {
  each_number(
      [&](size_t i, const StoredUse& use, double number) { states_[i]->set_number(use.argument, number); });
}

void UpdatesOfRun::count_step() const {
  for (const StoredUpdate& update : updates_) {
    ++optimizers_[update.optimizer].parameters[update.parameter].steps;
  }
}

}  // namespace overdrive::replay
