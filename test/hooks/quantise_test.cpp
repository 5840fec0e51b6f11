// quantise: bounds, bytes, bits that do not depend on the processor, and options that make no sense.
#include "hooks/packers/quantise.h"

#include "hooks/kernels/quantise_kernels.h"
#include "test/hooks/packers_fixture.h"

#include <malloc.h>

#include <cmath>

namespace overdrive::hooks {
namespace {

using testing::HasSubstr;

using Quantised = Packers;

TEST_F(Quantised, Int8StaysWithinHalfAStepOfTheBlocksLargest) {
  const Tensor x = at::randn({64, 128}) * at::logspace(-3, 3, 64).unsqueeze(1);
  int64_t bytes = 0;
  const Tensor back = through(quantise(), x, &bytes);
  const Tensor step = x.abs().amax(1, /*keepdim=*/true) / 126;
  const Tensor error = (back - x).abs() / step;
  EXPECT_TRUE((error <= at::where(x.abs() < step / 2, 1.0001, 0.5001)).all().item<bool>());
  EXPECT_TRUE(at::equal(back.sign(), x.sign())) << "zeros, or signs, are others";
  EXPECT_LE(static_cast<double>(bytes), 0.27 * static_cast<double>(x.nbytes()));
}

TEST_F(Quantised, StochasticRoundingIsRightOnAverage) {
  Tensor x = at::full({512, 128}, 0.3F);  // between two codes of a block whose largest is 1.263
  x.select(1, 0).fill_(1.263F);
  const HooksPtr hooks = quantise({.rounding = Rounding::kStochastic, .seed = 7});
  const Tensor back = through(hooks, x);
  EXPECT_NEAR(back.mean().item<double>(), x.mean().item<double>(), 1e-4);
  EXPECT_TRUE(((back - x).abs() <= 1.263 / 126 * 1.0001).all().item<bool>());
  const Tensor bits =
      through(quantise({.type = QuantisedType::kBFloat16, .rounding = Rounding::kStochastic}), x);
  EXPECT_NEAR(bits.mean().item<double>(), x.mean().item<double>(), 1e-4);
  EXPECT_FALSE(same_bits(bits, x.to(at::kBFloat16).to(at::kFloat)));
}

TEST_F(Quantised, ChanceIsAFunctionOfSeedAndPlace) {
  const Tensor x = at::randn({1000});
  const HooksPtr seven = quantise({.rounding = Rounding::kStochastic, .seed = 7});
  const auto generator = at::globalContext().defaultGenerator(at::kCPU).get_state();
  const Tensor once = through(seven, x), again = through(seven, x);
  EXPECT_TRUE(same_bits(once, again));
  EXPECT_FALSE(same_bits(once, through(quantise({.rounding = Rounding::kStochastic, .seed = 8}), x)));
  SaveInfo other = info_of(x), second = info_of(x);
  other.sequence_nr = 43;
  second.index = 1;
  for (const SaveInfo& place : {other, second}) {
    Packed packed = seven->pack(x, place);
    EXPECT_FALSE(same_bits(once, seven->unpack(packed, {.node = nullptr, .save = place}))) << place.index;
  }
  EXPECT_TRUE(at::equal(at::globalContext().defaultGenerator(at::kCPU).get_state(), generator));
}

TEST_F(Quantised, WhatIsNotFiniteStaysSo) {
  const Tensor x = at::tensor({1.F, kInf, -kInf, kNaN, -2.F, 0.F, 3.4e38F, -3.4e38F, 1e-40F});
  for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
    for (const QuantisedType type : {QuantisedType::kInt8, QuantisedType::kBFloat16}) {
      const Tensor back = through(quantise({.type = type, .rounding = rounding}), x);
      EXPECT_TRUE(at::equal(back.isnan(), x.isnan()));
      EXPECT_TRUE(at::equal(back.isposinf(), x.isposinf()));
      EXPECT_TRUE(at::equal(back.isneginf(), x.isneginf()));
    }
  }
  // A block of its own for the small ones: infinity does not spoil the scale.
  const Tensor mixed = at::cat({at::ones({127}), at::full({1}, kInf)});
  EXPECT_NEAR(through(quantise(), mixed)[0].item<float>(), 1.F, 0.01);
}

TEST_F(Quantised, BFloat16IsLibTorchsOwnRoundingButForTheLargest) {
  const Tensor x = at::cat({at::randn({1000}), at::tensor({1e-40F, -0.F, 3.4e38F})});
  int64_t bytes = 0;
  const Tensor back = through(quantise({.type = QuantisedType::kBFloat16}), x, &bytes);
  EXPECT_TRUE(same_bits(back.narrow(0, 0, 1002), x.to(at::kBFloat16).to(at::kFloat).narrow(0, 0, 1002)));
  EXPECT_TRUE(std::isfinite(back[1002].item<float>()));
  EXPECT_EQ(2 * bytes, static_cast<int64_t>(x.nbytes()));
}

TEST_F(Quantised, EveryInstructionSetGivesTheSameBits) {
  const Tensor x = at::randn({5000}) * at::logspace(-30, 30, 5000);
  x[17] = kNaN;
  x[4999] = kInf;
  const auto run = [&](const QuantiseKernels& kernels, bool chance) {
    const RoundingKey key{.use = chance, .first = 3, .second = 4};
    Tensor codes = at::empty({5000}, at::kChar), scales = at::empty({313}), back = at::empty({5000});
    kernels.to_int8(x.data_ptr<float>(), 0, 5000, 16, key, codes.data_ptr<int8_t>(), scales.data_ptr<float>());
    kernels.from_int8(codes.data_ptr<int8_t>(), scales.data_ptr<float>(), 5000, 16, back.data_ptr<float>());
    return std::vector<Tensor>{codes, scales, back};
  };
  for (const bool chance : {false, true}) {
    const auto best = run(quantise_kernels(), chance), portable = run(portable_quantise_kernels(), chance);
    for (size_t i = 0; i < best.size(); ++i) {
      EXPECT_TRUE(same_bits(best[i], portable[i])) << quantise_kernels().name << ", " << i;
    }
  }
}

TEST_F(Quantised, KeepsStridesAndTakesOddSizes) {
  for (const Tensor& x : {at::randn({7, 5}).t(), at::randn({3, 100}).narrow(1, 0, 33), at::randn({1})}) {
    const Tensor back = through(quantise(), x);
    EXPECT_EQ(back.sizes(), x.sizes());
    EXPECT_LE((back - x).abs().max().item<float>(), x.abs().max().item<float>() / 125);
  }
}

TEST_F(Quantised, TakesFloatsOnly) {
  EXPECT_FALSE(quantise()->wants(at::ones({2000}, at::kDouble), info_of(at::ones({2000}, at::kDouble))));
  EXPECT_FALSE(quantise()->wants(at::ones({2000}, at::kLong), info_of(at::ones({2000}, at::kLong))));
  EXPECT_TRUE(quantise()->wants(at::ones({2000}), info_of(at::ones({2000}))));
}

TEST_F(Quantised, LeavesSmallTensorsAlone) {
  EXPECT_FALSE(quantise()->wants(at::ones({1000}), info_of(at::ones({1000}))));
  EXPECT_TRUE(quantise({.min_bytes = 0})->wants(at::ones({1}), info_of(at::ones({1}))));
  // A row that is repeated is no more than the row, whatever the sizes say that another tensor has, too.
  const HooksPtr hooks = quantise();
  const Tensor row = at::randn({64}), wide = row.expand({64, 64}), full = wide.contiguous();
  for (const auto& [saved, is_exact] : {std::pair(full, false), std::pair(wide, true)}) {
    const Tensor x = leaf_of({64, 64});
    Tensor loss;
    {
      const ScopedHooks scope(hooks);
      loss = (x * saved).sum();
    }
    loss.backward();
    EXPECT_EQ(at::equal(x.grad(), saved), is_exact);
  }
}

TEST_F(Quantised, RefusesOptionsThatMakeNoSense) {
  EXPECT_THAT(message_of([] { quantise({.block = 100}); }).message, HasSubstr("blocks of 100"));
  EXPECT_THAT(message_of([] { quantise({.block = 8192}); }).message, HasSubstr("16 to 4096"));
  EXPECT_THAT(message_of([] { quantise({.min_bytes = -1}); }).message, HasSubstr("min_bytes = -1"));
  EXPECT_THAT(message_of([] { quantise({.seed = 3}); }).message, HasSubstr("a seed with nearest"));
  EXPECT_THAT(message_of([] { quantise({.type = QuantisedType::kBFloat16, .block = 64}); }).message,
              HasSubstr("has no blocks"));
}

TEST_F(Quantised, LargeMemoryIsUsedAgainUpToALimit) {
  const Tensor x = at::randn({1 << 21});  // 8 MiB, 2 of them packed
  const auto place_of_result = [&](const HooksPtr& hooks) { return through(hooks, x).data_ptr(); };
  const HooksPtr keeps = quantise();
  EXPECT_EQ(place_of_result(keeps), place_of_result(keeps));
  const Tensor held = through(keeps, x);
  EXPECT_NE(place_of_result(keeps), held.data_ptr()) << "somebody has it";
  EXPECT_TRUE(same_bits(through(keeps, x), held));

  // Sizes that nobody asks for again make room: 8 times 5 MiB would be too much.
  const HooksPtr some = quantise({.most_idle_bytes = int64_t{12} << 20});
  const auto bytes_in_use = [] {
    const struct mallinfo2 now = mallinfo2();
    return static_cast<int64_t>(now.uordblks + now.hblkhd);
  };
  const int64_t before = bytes_in_use();
  for (int64_t i = 0; i < 8; ++i) through(some, at::zeros({(1 << 20) + 4096 * i}));
  EXPECT_LT(bytes_in_use() - before, int64_t{20} << 20);

  Tensor outlives;
  {
    const HooksPtr gone = quantise({.type = QuantisedType::kBFloat16, .most_idle_bytes = 0});
    outlives = through(gone, x);
  }
  EXPECT_TRUE(same_bits(outlives, x.to(at::kBFloat16).to(at::kFloat)));
  EXPECT_THAT(message_of([] { quantise({.most_idle_bytes = -1}); }).message, HasSubstr("most_idle_bytes = -1"));
}

}  // namespace
}  // namespace overdrive::hooks
