#include "engine/native_nodes/native_nodes.h"

#include "engine/base/counters.h"
#include "engine/base/no_destructor.h"
#include "engine/native_nodes/table.h"

namespace overdrive::engine::native_nodes {

uint16_t number_of(const base::Node& node) { return table().number_of(node); }

bool run(uint16_t number, base::Node& node, base::variable_list& gradients, base::variable_list& results,
         bool views_are_seen, NativeRefusal refusal) {
  if (gradients.empty()) return false;
  if (refusal != NativeRefusal::kNone) [[unlikely]] {
    base::count_native(number, place_of(refusal));
    return false;
  }
  results.resize(node.num_outputs());
  NativeCall call{node, gradients, results, views_are_seen};
  const NativeOutcome outcome = table().row(number).run(call);
  base::count_native(number, place_of(outcome));
  if (outcome == NativeOutcome::kRan) return true;
  results.clear();
  return false;
}

size_t count_types() { return table().size(); }
const std::string& type_name(size_t number) { return table().row(static_cast<uint16_t>(number)).name; }

void Table::append(const std::type_info& type, const char* name, NativeFunction run) {
  TORCH_INTERNAL_ASSERT(rows_.size() < base::kNativeTypes);
  rows_.push_back({&type, name, run});
  size_t at = place_of(&type);
  while (places_[at] != 0) at = (at + 1) % kPlaces;
  places_[at] = static_cast<uint16_t>(rows_.size() - 1);
}

const Table& table() {
  static base::NoDestructor<Table> all([] {
    Table made;
    add_elementwise(made);
    add_scaled(made);
    add_products(made);
    add_shapes(made);
    add_reductions(made);
    add_parts(made);
    add_accumulation(made);
    add_below_autograd(made);
    return made;
  }());
  return *all;
}

}  // namespace overdrive::engine::native_nodes
