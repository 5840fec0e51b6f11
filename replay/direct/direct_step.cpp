#include "replay/direct/direct_step.h"

#include <algorithm>

namespace overdrive::replay {

namespace {

std::string_view plain_name(std::string_view name) {
  name.remove_prefix(std::min(name.find("::") + 2, name.size()));
  name = name.substr(0, name.find('.'));
  if (name.ends_with("_")) name.remove_suffix(1);
  return name;
}

// A kernel's iterator would keep the number as it was.
bool reads_a_number_of_the_call(const Program& program, const Operator& op) {
  return std::any_of(op.in.begin(), op.in.end(), [&](const Argument& in) {
    return std::any_of(in.values.begin(), in.values.end(),
                       [&](int value) { return value >= 0 && program.memory_of(value).number >= 0; });
  });
}

}  // namespace

std::optional<Step> direct_step(const BoundProgram& bound, const Operator& op) {
  if (op.answers || op.out.empty() || !op.out[0].is_tensor() || op.out[0].values[0] < 0) return std::nullopt;
  if (reads_a_number_of_the_call(bound.program(), op)) return std::nullopt;
  DirectCall call{bound, op, plain_name(op.name), bound.tensor(op.out[0].values[0])};
  const at::ScalarType type = call.out.scalar_type();
  if ((type != at::kFloat && type != at::kDouble) || call.out.numel() == 0) return std::nullopt;
  if (op.out.size() > 1) return direct_pooling(call);
  for (const auto family :
       {direct_short_loop, direct_elementwise, direct_product, direct_copy, direct_reduction}) {
    if (auto step = family(call)) return step;
  }
  return std::nullopt;
}

}  // namespace overdrive::replay
