// From a node's type to the function that runs it, and a number for each type that has one. Filled once a
// process, read by any thread. The families (elementwise.cpp and its neighbours) fill it; the caller
// decides whether native nodes are on.
#pragma once

#include "engine/native_nodes/native_call.h"

#include <c10/util/Type.h>

#include <array>
#include <string>
#include <typeinfo>
#include <vector>

namespace overdrive::engine::native_nodes {

struct Row {
  const std::type_info* type;  // null: an empty place
  std::string name;            // as Node::name() has it
  NativeFunction run;
};

class Table {
 public:
  // Adds the type unless this version of LibTorch has other fields in it than `Family` reads.
  template <typename N, typename Family>
  void add(const char* name) {
    if constexpr (Family::template kFits<N>) {
      append(typeid(N), name, [](NativeCall& call) { return Family::run(static_cast<N&>(call.node), call); });
    }
  }

  // The number of a node's type; 0: it is none of ours.
  uint16_t number_of(const base::Node& node) const {
    const std::type_info* type = &typeid(node);
    for (size_t at = place_of(type);; at = (at + 1) % kPlaces) {
      const uint16_t number = places_[at];
      if (number == 0 || rows_[number].type == type) return number;
    }
  }
  const Row& row(uint16_t number) const { return rows_[number]; }
  size_t size() const { return rows_.size(); }

 private:
  static constexpr size_t kPlaces = 512;

  static size_t place_of(const std::type_info* type) {
    return (reinterpret_cast<uintptr_t>(type) * 0x9E3779B97F4A7C15ull) >> 55;
  }
  void append(const std::type_info& type, const char* name, NativeFunction run);

  std::vector<Row> rows_ = std::vector<Row>(1);  // [0] is no type
  std::array<uint16_t, kPlaces> places_{};
};

const Table& table();

// One for each family.
void add_elementwise(Table& table);
void add_scaled(Table& table);
void add_products(Table& table);
void add_shapes(Table& table);
void add_reductions(Table& table);
void add_parts(Table& table);
void add_accumulation(Table& table);
void add_below_autograd(Table& table);

}  // namespace overdrive::engine::native_nodes
