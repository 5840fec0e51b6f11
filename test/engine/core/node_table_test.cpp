#include "engine/node_table.h"

#include <gtest/gtest.h>

#include <random>
#include <unordered_map>

namespace {

using overdrive::engine::NodeTable;

const void* address(uint64_t number) { return reinterpret_cast<const void*>((number + 1) * 16); }

TEST(NodeTable, NumbersEachKeyOnce) {
  NodeTable table;
  table.reset(0);
  EXPECT_EQ(table.find_or_add(address(1), 0), 0u);
  EXPECT_EQ(table.find_or_add(address(2), 1), 1u);
  EXPECT_EQ(table.find_or_add(address(1), 2), 0u);
  EXPECT_EQ(table.find(address(2)), 1u);
  EXPECT_EQ(table.find(address(3)), NodeTable::kNone);
}

TEST(NodeTable, AgreesWithAMapWhileItGrows) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    NodeTable table;
    table.reset(0);
    std::unordered_map<const void*, uint32_t> map;
    for (int step = 0; step < 20000; ++step) {
      // Half of the keys lie close together, as nodes made in a row do.
      const void* key = address(random() % 2 ? random() % 5000 : random() % (uint64_t{1} << 40));
      const auto next = static_cast<uint32_t>(map.size());
      ASSERT_EQ(table.find_or_add(key, next), map.try_emplace(key, next).first->second) << "seed " << seed;
    }
    for (const auto& [key, number] : map) ASSERT_EQ(table.find(key), number);
  }
}

TEST(NodeTable, ForgetsEverythingOnReset) {
  NodeTable table;
  table.reset(100);
  for (uint32_t i = 0; i < 100; ++i) table.find_or_add(address(i), i);
  table.reset(3);
  for (uint32_t i = 0; i < 100; ++i) EXPECT_EQ(table.find(address(i)), NodeTable::kNone);
}

}  // namespace
