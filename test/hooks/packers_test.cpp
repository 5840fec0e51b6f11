// The packers that are made of others, and recompute.
#include "test/hooks/packers_fixture.h"

#include <functional>

namespace overdrive::hooks {
namespace {

using testing::HasSubstr;

TEST_F(Packers, RecomputeDropsAndMakesAgain) {
  const Tensor x = leaf_of({5});
  Tensor loss;
  int made = 0;
  {
    const Tensor input = x.detach();
    const ScopedHooks scope(recompute([&](const Tensor&, const SaveInfo& info) -> MakeAgain {
      if (info.op() != "ExpBackward0") return nullptr;
      return [&made, input] { return ++made, input.exp(); };
    }));
    loss = x.exp().sin().sum();
  }
  loss.backward();
  EXPECT_EQ(made, 2) << "once for each node that saved it";
  EXPECT_TRUE(at::allclose(x.grad(), x.detach().exp() * x.detach().exp().cos()));
  EXPECT_THAT(message_of([] { recompute(nullptr); }).message, HasSubstr("needs a function"));
}

TEST_F(Packers, FiltersLetOthersPass) {
  const Tensor small = leaf_of({3}) * 1, large = leaf_of({100}) * 1, wide = leaf_of({3}).to(at::kDouble) * 1;
  const auto packs = [&](const HooksPtr& hooks) {
    copying_->saves.clear();
    const ScopedHooks scope(hooks);
    for (const Tensor& t : {small, large, wide}) t.exp().sum().backward({}, /*retain_graph=*/true);
    return copying_->saves.size();
  };
  EXPECT_EQ(packs(min_bytes(100, copying_)), 1u);
  EXPECT_EQ(packs(min_bytes(400, copying_)), 1u) << "the very size";
  EXPECT_EQ(packs(min_bytes(401, copying_)), 0u);
  EXPECT_EQ(packs(only_types({at::kFloat}, copying_)), 2u);
  EXPECT_EQ(packs(where([](const Tensor& t, const SaveInfo&) { return t.size(0) == 3; }, copying_)), 2u);
  EXPECT_THAT(message_of([&] { min_bytes(-1, copying_); }).message, HasSubstr("-1"));
  EXPECT_THAT(message_of([&] { only_types({}, copying_); }).message, HasSubstr("no types"));
  EXPECT_THAT(message_of([&] { where(nullptr, copying_); }).message, HasSubstr("needs a condition"));
}

TEST_F(Packers, AGraphThatIsNeverRunGoesUnderEachOfThem) {
  const auto again = [](const Tensor& t, const SaveInfo&) -> MakeAgain { return [t] { return t; }; };
  const std::vector<std::function<HooksPtr()>> all{
      [] { return keep(); },
      [] { return quantise({.min_bytes = 0}); },
      [] { return spill_to_disk({.folder = {}, .min_bytes = 0}); },
      [] { return spill_to_disk({.folder = {}, .min_bytes = 0, .drop_cached = true}); },
      [] { return offload_to_cpu(); },
      [&] { return recompute(again); },
      [] { return compose(quantise({.min_bytes = 0}), spill_to_disk({.folder = {}, .min_bytes = 0})); },
      [] { return min_bytes(8, keep()); },
      [] { return schedulable(quantise({.min_bytes = 0}), {.window_tensors = 1}); }};
  for (const auto& make : all) {
    base::WeakNodePtr node{base::NodePtr()};
    std::weak_ptr<SavedTensorHooks> hooks;
    std::string name;
    {
      const HooksPtr made = make();
      hooks = made;
      name = made->name();
      const ScopedHooks scope(made);
      const Tensor x = leaf_of({4, 4}), y = x * 2;
      Tensor z = y.exp() * y.t().sin();
      z.narrow(0, 0, 2).mul_(y.narrow(0, 1, 2));
      node = (z.matmul(y).tanh() * y).sum().grad_fn();
    }
    EXPECT_TRUE(node.expired()) << name << ": the graph owns itself";
    EXPECT_TRUE(hooks.expired()) << name << ": somebody still has it";
  }
}

TEST_F(Packers, ComposePacksWhatTheFirstMade) {
  const Tensor x = at::randn({64, 128});
  const Tensor expected = through(quantise(), x);
  const HooksPtr both = compose(quantise(), copying_);
  EXPECT_TRUE(same_bits(through(both, x), expected));
  EXPECT_EQ(copying_->packed, (std::vector<std::vector<int64_t>>{{64, 128}, {64}}));
  EXPECT_TRUE(same_bits(through(compose(quantise(), min_bytes(1000, copying_)), x), expected));
  EXPECT_EQ(copying_->packed.size(), 3u);
  EXPECT_EQ(both->name(), "quantise (int8) and then CopyingHooks");
}

// A hook that makes of a tensor what `pack` says, and takes it back by `unpack`.
HooksPtr made_into(const std::function<Tensor(const Tensor&)>& pack,
                   const std::function<Tensor(const Tensor&)>& unpack) {
  return make_hooks(
      [pack](const Tensor& t, const SaveInfo&) {
        return Packed{{pack(t), Tensor()}, {}};
      },
      [unpack](Packed& packed, const UnpackInfo&) {
        TORCH_CHECK(!packed.tensors[1].defined());
        return unpack(packed.tensors[0]);
      },
      {.lossless = true});
}

TEST_F(Packers, ComposeGivesTheSecondWhatAnOpCouldHaveSaved) {
  const Tensor z = at::randn({8, 8}, at::kComplexFloat), x = at::randn({8, 8});
  const auto same = [](const Tensor& t) { return t; };
  const auto in_inference = [](const Tensor& t) {
    const c10::InferenceMode mode;
    return t.clone();
  };
  const HooksPtr conjugated = made_into([](const Tensor& t) { return t.conj(); },
                                        [](const Tensor& t) { return t.conj().resolve_conj(); });
  const HooksPtr negated =
      made_into([](const Tensor& t) { return at::_neg_view(t); }, [](const Tensor& t) { return -t; });
  const HooksPtr repeated = made_into(
      [](const Tensor& t) {
        return t.select(1, 0).expand({5, 8});
      },
      [x](const Tensor& t) {
        return at::equal(t, x.select(1, 0).expand({5, 8})) ? x : t;
      });
  const HooksPtr sparse =
      made_into([](const Tensor& t) { return t.to_sparse(); }, [](const Tensor& t) { return t.to_dense(); });
  const HooksPtr inferred = made_into(in_inference, same);
  for (const HooksPtr& second : {keep(), HooksPtr(copying_), spill_to_disk({.folder = {}, .min_bytes = 0})}) {
    EXPECT_TRUE(same_bits(through(compose(conjugated, second), z), z)) << second->name();
    for (const HooksPtr& first : {negated, repeated, sparse, inferred}) {
      EXPECT_TRUE(same_bits(through(compose(first, second), x), x)) << second->name();
    }
  }
}

}  // namespace
}  // namespace overdrive::hooks
