#include "engine/own_nodes/table.h"

#include "engine/base/counters.h"
#include "engine/base/no_destructor.h"

namespace overdrive::engine::own {

void Table::append(const std::type_info& type, const char* name, OwnFunction run) {
  TORCH_INTERNAL_ASSERT(rows_.size() < kOwnTypes);
  rows_.push_back({&type, name, run});
  size_t at = place_of(&type);
  while (places_[at] != 0) at = (at + 1) % kPlaces;
  places_[at] = static_cast<uint16_t>(rows_.size() - 1);
}

const Table& table() {
  static base::NoDestructor<Table> all([] {
    Table made;
    add_elementwise(made);
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

}  // namespace overdrive::engine::own
