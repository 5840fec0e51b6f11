// A policy that chooses, tensor by tensor, what is recomputed.
#include "checkpoint/chain/sequential.h"
#include "test/checkpoint/checkpoint_fixture.h"

namespace overdrive::checkpoint {
namespace {

class Policies : public CheckpointTest {
 protected:
  Tensor region(const Tensor& t) {
    ++runs;
    return block(block(t));
  }
  Tensor with(Policy policy, hooks::HooksPtr packer = nullptr) {
    return checkpoint(
        {.form = Form::kOnDemand, .policy = std::move(policy), .packer = std::move(packer)},
        [this](const Tensor& t) { return region(t); }, x * 1);
  }
  static Policy always(Choice choice) {
    return [choice](const SavedByOp&) { return choice; };
  }

  int runs = 0;
};

TEST_F(Policies, IsToldWhatAnOpSaves) {
  std::vector<std::string> makers;
  with([&](const SavedByOp& saved) {
    EXPECT_EQ(saved.sizes, at::IntArrayRef({4, 8}));
    EXPECT_EQ(saved.dtype, at::kFloat);
    EXPECT_EQ(saved.bytes, 4 * 8 * 4);
    makers.push_back(saved.made_by);
    return Choice::kRecompute;
  });
  // Of each block the input, what tanh made twice, and nothing for the weight.
  EXPECT_THAT(makers, ElementsAre("MulBackward1", "TanhBackward0", "TanhBackward0", "SinBackward0",
                                  "TanhBackward0", "TanhBackward0"));
}

TEST_F(Policies, RunNothingAgainWhereAllIsSaved) {
  expect_same([&] { return region(x * 1); }, [&] { return with(always(Choice::kSave)); });
  EXPECT_EQ(runs, 2) << "once plain, once checkpointed";
}

TEST_F(Policies, GiveToTheirHookWhatIsToBePacked) {
  int packed = 0, unpacked = 0;
  const auto counting = hooks::make_hooks(
      [&](const Tensor& tensor, const hooks::SaveInfo&) {
        ++packed;
        return hooks::Packed{.tensors = {tensor.clone()}, .state = packed};
      },
      [&](hooks::Packed& from, const hooks::UnpackInfo&) {
        EXPECT_GT(std::any_cast<int>(from.state), 0);
        ++unpacked;
        return from.tensors[0];
      });
  expect_same([&] { return region(x * 1); }, [&] { return with(always(Choice::kPack), counting); });
  EXPECT_EQ(packed, 6);
  EXPECT_EQ(unpacked, 6);
  EXPECT_EQ(runs, 2);
}

TEST_F(Policies, NeedAHookToPackWith) {
  EXPECT_THAT(error_of([&] { with(always(Choice::kPack)); }), HasSubstr("has no Options::packer"));
}

TEST_F(Policies, AndOptionsOfTheOtherFormAreRefused) {
  const auto f = [](const Tensor& t) { return t.exp(); };
  EXPECT_THAT(error_of([&] { checkpoint({.form = Form::kEarly, .policy = always(Choice::kSave)}, f, x); }),
              HasSubstr("Use the form kOnDemand"));
  EXPECT_THAT(error_of([&] { checkpoint({.form = Form::kOnDemand, .ahead = 1}, f, x); }),
              HasSubstr("Use the form kEarly"));
}

TEST_F(Policies, StopTheSecondRunBehindTheLastDroppedTensor) {
  int ends = 0;
  const auto f = [&](const Tensor& t) {
    const Tensor dropped = t.exp();
    ++ends;
    return dropped.tanh();
  };
  const auto save_tanh = [](const SavedByOp& saved) {
    return saved.made_by == "TanhBackward0" ? Choice::kSave : Choice::kRecompute;
  };
  const auto run = [&] { return checkpoint({.form = Form::kOnDemand, .policy = save_tanh}, f, x); };
  expect_same([&] { return f(x); }, run);
  EXPECT_EQ(ends, 2) << "the second run ended before";
}

TEST_F(Policies, MixAsTheyLike) {
  for (int seed = 0; seed < 40; ++seed) {
    int asked = seed;
    const auto policy = [&asked](const SavedByOp&) { return static_cast<Choice>((asked++ * 7 / 3) % 3); };
    const auto keep = hooks::make_hooks(
        [](const Tensor& tensor, const hooks::SaveInfo&) {
          return hooks::Packed{.tensors = {tensor}, .state = {}};
        },
        [](hooks::Packed& from, const hooks::UnpackInfo&) { return from.tensors[0]; });
    std::vector<Layer> layers;
    for (int i = 0; i < 6; ++i) {
      layers.push_back(
          [this, i](const Tensor& t) { return i % 2 == 0 ? block(t) : at::dropout(t, 0.2, true); });
    }
    const auto run = [&](bool plain) {
      torch::manual_seed(seed);
      Tensor t = x;
      if (!plain) return checkpoint_sequential(layers, x, Selective{policy, keep});
      for (const Layer& layer : layers) t = layer(t);
      return t;
    };
    expect_same([&] { return run(true); }, [&] { return run(false); });
  }
}

TEST_F(Policies, AreAskedForBySelective) {
  EXPECT_THAT(error_of([&] { checkpoint_sequential({[](const Tensor& t) { return t; }}, x, Selective{}); }),
              HasSubstr("Selective needs a policy"));
}

}  // namespace
}  // namespace overdrive::checkpoint
