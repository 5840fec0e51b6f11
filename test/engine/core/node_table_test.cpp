#include "engine/plan/node_table.h"

#include "engine/plan/growing_array.h"

#include <gtest/gtest.h>

#include <random>
#include <unordered_map>

namespace {

using overdrive::engine::GrowingArray;
using overdrive::engine::NodeTable;

const void* address(uint64_t number) { return reinterpret_cast<const void*>((number + 1) * 16); }

// A table with the addresses that a plan would hold.
struct Numbering {
  NodeTable table;
  GrowingArray<const void*> keys;

  Numbering() { table.reset(0); }
  uint32_t number(const void* key) {
    const auto address_of = [this](uint32_t n) { return keys[n]; };
    const auto next = static_cast<uint32_t>(keys.size());
    table.make_room(next, address_of);
    const uint32_t found = table.find_or_add(key, next, address_of);
    if (found == next) keys.push_back(key);
    return found;
  }
  uint32_t find(const void* key) const {
    return table.find(key, [this](uint32_t n) { return keys[n]; });
  }
};

TEST(NodeTable, NumbersEachKeyOnce) {
  Numbering numbering;
  EXPECT_EQ(numbering.number(address(1)), 0u);
  EXPECT_EQ(numbering.number(address(2)), 1u);
  EXPECT_EQ(numbering.number(address(1)), 0u);
  EXPECT_EQ(numbering.find(address(2)), 1u);
  EXPECT_EQ(numbering.find(address(3)), NodeTable::kNone);
}

TEST(NodeTable, AgreesWithAMapWhileItGrows) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    Numbering numbering;
    std::unordered_map<const void*, uint32_t> map;
    for (int step = 0; step < 20000; ++step) {
      // Half of the keys lie close together, as nodes made in a row do.
      const void* key = address(random() % 2 ? random() % 5000 : random() % (uint64_t{1} << 40));
      const auto next = static_cast<uint32_t>(map.size());
      ASSERT_EQ(numbering.number(key), map.try_emplace(key, next).first->second) << "seed " << seed;
    }
    for (const auto& [key, number] : map) ASSERT_EQ(numbering.find(key), number);
  }
}

TEST(NodeTable, ForgetsEverythingOnReset) {
  Numbering numbering;
  for (uint32_t i = 0; i < 100; ++i) numbering.number(address(i));
  numbering.table.reset(3);
  numbering.keys.clear();
  for (uint32_t i = 0; i < 100; ++i) EXPECT_EQ(numbering.find(address(i)), NodeTable::kNone);
}

TEST(GrowingArray, KeepsItsValuesWhileItGrows) {
  GrowingArray<uint32_t> array;
  for (uint32_t i = 0; i < 100000; ++i) array.push_back(i * 3);
  ASSERT_EQ(array.size(), 100000u);
  for (uint32_t i = 0; i < 100000; ++i) ASSERT_EQ(array[i], i * 3);
  array.clear();
  EXPECT_EQ(array.size(), 0u);
  EXPECT_GE(array.capacity(), 100000u);
  array.release_memory();
  EXPECT_EQ(array.capacity(), 0u);
}

}  // namespace
