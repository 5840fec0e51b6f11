#include "replay/passes/operator_kind.h"

#include "engine/operators/facts.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <string_view>

namespace overdrive::replay {

namespace {

std::string_view base_name(std::string_view name) {
  if (name.starts_with("aten::")) name.remove_prefix(6);
  return name.substr(0, name.find('.'));
}

bool is_undefined(const Argument& out) {
  return out.kind == Argument::Kind::kConstant && out.constant.isTensor() && !out.constant.toTensor().defined();
}

// Each result is a new tensor, alone in its memory, or none.
bool results_are_new(const Program& program, const Operator& op) {
  if (op.out.empty() || op.out.size() != op.fresh.size()) return false;
  for (size_t i = 0; i < op.out.size(); ++i) {
    const Argument& out = op.out[i];
    if (is_undefined(out)) continue;
    if (!out.is_tensor() || out.values[0] < 0 || !op.fresh[i]) return false;
    if (program.memory_of(out.values[0]).origin != Origin::kMade) return false;
  }
  return true;
}

}  // namespace

// An operator that the table does not know may throw as well.
bool may_throw_on_data(const Program& program, const Operator& op) {
  if (op.answers) return true;
  const engine::Throws throws = engine::facts_of(op.name).throws;
  if (throws != engine::Throws::kOnIntegers) return throws != engine::Throws::kNever;
  return std::none_of(op.out.begin(), op.out.end(), [&](const Argument& out) {
    return out.is_tensor() && out.values[0] >= 0 &&
           !at::isIntegralType(program.values[out.values[0]].type, false);
  });
}

bool is_random(const Operator& op) {
  if (op.handle.hasTag(at::Tag::nondeterministic_seeded)) return true;
  return std::any_of(op.in.begin(), op.in.end(), [](const Argument& in) {
    return in.kind == Argument::Kind::kConstant && in.constant.isGenerator();
  });
}

bool is_function(const Program& program, const Operator& op) {
  if (op.vanishes || op.answers || !op.writes.empty() || op.handle.schema().is_mutable() || is_random(op))
    return false;
  const std::string_view name = base_name(op.name);
  if (!op.name.starts_with("aten::") || name.starts_with("empty") || name.starts_with("new_empty"))
    return false;
  return engine::facts_of(op.name).throws != engine::Throws::kUnknown && results_are_new(program, op);
}

bool is_loop_over_elements(const Operator& op) {
  static constexpr std::string_view names[]{"abs",
                                            "add",
                                            "addcdiv",
                                            "addcmul",
                                            "cos",
                                            "div",
                                            "exp",
                                            "gelu",
                                            "gelu_backward",
                                            "leaky_relu",
                                            "leaky_relu_backward",
                                            "log",
                                            "maximum",
                                            "minimum",
                                            "mul",
                                            "neg",
                                            "pow",
                                            "reciprocal",
                                            "relu",
                                            "rsqrt",
                                            "sigmoid",
                                            "sigmoid_backward",
                                            "silu",
                                            "silu_backward",
                                            "sin",
                                            "sqrt",
                                            "sub",
                                            "tanh",
                                            "tanh_backward",
                                            "threshold_backward"};
  return std::find(std::begin(names), std::end(names), base_name(op.name)) != std::end(names);
}

bool ignores_autograd(const Operator& op) {
  if (op.handle.hasTag(at::Tag::pointwise) || op.handle.hasTag(at::Tag::reduction)) return true;
  static constexpr std::string_view names[]{"mm",
                                            "addmm",
                                            "bmm",
                                            "baddbmm",
                                            "mv",
                                            "dot",
                                            "cat",
                                            "sum",
                                            "mean",
                                            "zeros",
                                            "ones",
                                            "full",
                                            "arange",
                                            "zeros_like",
                                            "ones_like",
                                            "full_like",
                                            "new_zeros",
                                            "new_ones",
                                            "new_full",
                                            "leaky_relu_backward",
                                            "_softmax",
                                            "_log_softmax",
                                            "_softmax_backward_data",
                                            "_log_softmax_backward_data"};
  return std::find(std::begin(names), std::end(names), base_name(op.name)) != std::end(names);
}

bool is_passing(const Program& program, int memory) {
  const Memory& each = program.memories[memory];
  return each.origin == Origin::kMade && !each.lives && !program.is_result(memory);
}

}  // namespace overdrive::replay
