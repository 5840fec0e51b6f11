// Every native node beside stock: programs around each row of the table, over operands, values, types, root
// gradients, places in a graph and surroundings. All that a program can see must be the same.
#include "engine/engine.h"
#include "engine/kernels/elementwise.h"
#include "test/engine/native_nodes/programs.h"
#include "test/support/engines.h"

#include <ATen/Parallel.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>

namespace overdrive::test {
namespace {

template <typename Enum>
Enum draw(uint64_t& from) {
  const auto n = static_cast<uint64_t>(Enum::kHowMany);
  const auto value = static_cast<Enum>(from % n);
  from /= n;
  return value;
}

struct Threads {
  explicit Threads(int n) : before(at::get_num_threads()) { at::set_num_threads(n); }
  ~Threads() { at::set_num_threads(before); }
  int before;
};

void compare(const NativeProgram& program) {
  const std::string ours = on<Overdrive>([&] { return program.run(); });
  const std::string stocks = on<StockEngine>([&] { return program.run(); });
  EXPECT_EQ(ours, stocks) << program.name();
}

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x7fb5d329728ea185ull;
  x = (x ^ (x >> 27)) * 0x81dadef4bc2dd44dull;
  return x ^ (x >> 33);
}

// The surroundings of a type, all of them; everything else is drawn.
void compare_around(const NativeRow& row, uint64_t number, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    for (int around = 0; around < static_cast<int>(Around::kHowMany); ++around) {
      uint64_t draws = mix(number * 1000003 + static_cast<uint64_t>(round * 100 + around));
      NativeProgram program{&row};
      program.around = static_cast<Around>(around);
      program.seed = draws;
      program.wiring = draw<Wiring>(draws);
      program.operand = draw<Operand>(draws);
      program.root = draw<Root>(draws);
      program.values = draw<Values>(draws);
      if (draws % 3 == 0) program.type = program.second_type = at::kDouble;
      compare(program);
      if (testing::Test::HasFailure()) return;
    }
  }
}

// Most of the time of such a row goes into making and comparing numbers.
bool is_large(const NativeRow& row) { return at::empty(row.operands[0], at::kMeta).numel() > 10000; }

class NativeNodes : public testing::TestWithParam<size_t> {};

TEST_P(NativeNodes, AreStocksInEverySurrounding) {
  const NativeRow& row = native_rows()[GetParam()];
  const Threads one(1);
  compare_around(row, GetParam(), is_large(row) ? 1 : 8);
}

TEST_P(NativeNodes, AreStocksOnTwoThreadsOfTheHost) {
  const NativeRow& row = native_rows()[GetParam()];
  const Threads two(2);
  compare_around(row, GetParam() + 1000, 1);
}

TEST_P(NativeNodes, AreStocksForOtherTypes) {
  const NativeRow& row = native_rows()[GetParam()];
  const Threads one(1);
  const std::pair<at::ScalarType, at::ScalarType> types[] = {
      {at::kBFloat16, at::kBFloat16},  {at::kHalf, at::kHalf},    {at::kComplexFloat, at::kComplexFloat},
      {at::kFloat, at::kDouble},       {at::kDouble, at::kFloat}, {at::kFloat, at::kHalf},
      {at::kComplexFloat, at::kFloat},
  };
  uint64_t number = GetParam() * 31;
  for (const auto& [first, second] : types) {
    constexpr auto kWirings = static_cast<uint64_t>(Wiring::kHowMany);
    const uint64_t only = number / kWirings % kWirings;  // each in turn
    for (uint64_t wiring = 0; wiring < kWirings; ++wiring) {
      uint64_t draws = mix(++number);
      if (is_large(row) && wiring != only) continue;
      NativeProgram program{&row};
      program.type = first;
      program.second_type = second;
      program.seed = draws;
      program.wiring = static_cast<Wiring>(wiring);
      program.operand = draw<Operand>(draws);
      program.root = draw<Root>(draws);
      program.around = wiring % 2 == 0 ? Around::kOnce : Around::kTwiceKept;
      compare(program);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, NativeNodes, testing::Range(size_t{0}, native_rows().size()),
                         [](const auto& tested) {
                           std::string name = native_rows()[tested.param].type + std::to_string(tested.param);
                           std::erase_if(name,
                                         [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); });
                           return name;
                         });

// Types that ran themselves while the rows of the table ran in the plainest way.
std::set<std::string> types_that_ran() {
  reset_stats();
  for (const NativeRow& row : native_rows()) {
    NativeProgram program{&row};
    program.wiring = Wiring::kAlone;
    on<Overdrive>([&] { return program.run(); });
  }
  std::set<std::string> ran;
  for (const auto& [type, n] : stats().own_nodes) ran.insert(type);
  return ran;
}

TEST(NativeNodesTable, NamesEveryTypeAndEachOfThemRuns) {
  const std::set<std::string> ran = types_that_ran();
  for (const std::string& type : own_node_types()) EXPECT_TRUE(ran.contains(type)) << type;
  EXPECT_EQ(ran.size(), own_node_types().size());
}

TEST(NativeNodesTable, CountsWhyATypeDeclined) {
  reset_stats();
  on<Overdrive>([] {
    const at::Tensor x = at::ones({2, 2}, at::kBFloat16).set_requires_grad(true);
    (x * x).sum().backward();
    return 0;
  });
  EXPECT_EQ(stats().declined_nodes.at("MulBackward0: gradient"), 1u);
  EXPECT_EQ(stats().own_nodes.count("MulBackward0"), 0u);
}

// Numbers of both signs, zeros, infinities, NaNs of both signs and the smallest; lengths around a vector's.
TEST(NativeNodesTable, LoopsForWideVectorsHaveTheBitsOfThePortableOnes) {
  const auto compare_loops = [](auto zero) {
    using T = decltype(zero);
    const kernels::Loops<T>&wide = kernels::loops<T>(), &portable = kernels::portable_loops<T>();
    constexpr T kNaN = std::numeric_limits<T>::quiet_NaN(), kInfinity = std::numeric_limits<T>::infinity();
    const T odd[] = {0, T(-0.0), kInfinity, -kInfinity, kNaN, -kNaN, std::numeric_limits<T>::denorm_min(),
                     3, T(-0.7)};
    uint64_t draws = 7;
    const auto numbers = [&](size_t n, bool with_nan) {
      std::vector<T> made(n);
      for (T& x : made) {
        draws = mix(draws + 1);
        x = draws % 3 != 0 ? static_cast<T>(static_cast<double>(draws % 4096) / 512 - 4)
                           : odd[draws % std::size(odd)];
        if (!with_nan && std::isnan(x)) x = 1;
      }
      return made;
    };
    for (const size_t n : {1, 3, 8, 15, 16, 17, 64, 1001}) {
      // A gradient with a NaN reaches only the loops that do not multiply two NaNs.
      const std::vector<T> any = numbers(n, true), a = numbers(n, false), b = numbers(n, true);
      const auto size = static_cast<int64_t>(n);
      const auto same = [&](const char* name, auto&& run) {
        std::vector<T> of_wide = a, of_portable = a;
        run(wide, of_wide.data());
        run(portable, of_portable.data());
        EXPECT_EQ(std::memcmp(of_wide.data(), of_portable.data(), n * sizeof(T)), 0) << name << " of " << n;
      };
      same("multiply", [&](const auto& loops, T* out) { loops.multiply(out, out, b.data(), size); });
      same("multiply_by",
           [&](const auto& loops, T* out) { loops.multiply_by(out, any.data(), T(-0.3), size); });
      same("divide", [&](const auto& loops, T* out) { loops.divide(out, out, b.data(), size); });
      same("divide_by", [&](const auto& loops, T* out) { loops.divide_by(out, any.data(), T(0.3), size); });
      same("negate", [&](const auto& loops, T* out) { loops.negate(out, any.data(), size); });
      same("add", [&](const auto& loops, T* out) { loops.add(out, any.data(), b.data(), size); });
      same("add in place", [&](const auto& loops, T* out) { loops.add(out, out, b.data(), size); });
      same("fill", [&](const auto& loops, T* out) { loops.fill(out, -kNaN, size); });
      same("relu", [&](const auto& loops, T* out) { loops.relu_backward(out, any.data(), b.data(), size); });
      same("sigmoid", [&](const auto& loops, T* out) { loops.sigmoid_backward(out, out, b.data(), size); });
      same("sqrt", [&](const auto& loops, T* out) { loops.sqrt_backward(out, out, b.data(), size); });
      same("square", [&](const auto& loops, T* out) { loops.square_backward(out, out, b.data(), size); });
      same("cube", [&](const auto& loops, T* out) { loops.cube_backward(out, out, b.data(), size); });
      same("error", [&](const auto& loops, T* out) {
        loops.square_error_backward(out, a.data(), b.data(), T(0.5), T(2), size);
      });
      same("divisor",
           [&](const auto& loops, T* out) { loops.divisor_backward(out, out, a.data(), a.data(), size); });
      EXPECT_EQ(wide.has_nan(any.data(), size), portable.has_nan(any.data(), size)) << n;
      EXPECT_FALSE(wide.has_nan(a.data(), size)) << n;
    }
  };
  compare_loops(float{});
  compare_loops(double{});
}

TEST(NativeNodesTable, IsLeftAloneWhenSwitchedOff) {
  Options options = Options::from_environment();
  options.own_nodes = false;
  install(options);
  reset_stats();
  const at::Tensor x = at::ones({2, 2}).set_requires_grad(true);
  (x * x).sum().backward();
  EXPECT_TRUE(stats().own_nodes.empty());
  EXPECT_TRUE(stats().declined_nodes.empty());
  uninstall();
}

}  // namespace
}  // namespace overdrive::test
