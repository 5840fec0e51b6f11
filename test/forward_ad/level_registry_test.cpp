#include "test/forward_ad/forward_ad_fixture.h"

#include <future>
#include <thread>

namespace overdrive::forward_ad {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using LevelRegistryTest = ForwardAdTest;

TEST_F(LevelRegistryTest, OpensAnyNumberOfLevels) {
  std::vector<uint64_t> opened;
  for (int i = 0; i < 100; ++i) opened.push_back(LevelRegistry::get_next_idx());
  EXPECT_EQ(active_levels(), opened);
  for (uint64_t idx : opened) EXPECT_EQ(LevelRegistry::get_by_idx(idx)->idx(), idx);
  for (; !opened.empty(); opened.pop_back()) LevelRegistry::release_idx(opened.back());
}

TEST_F(LevelRegistryTest, NeverUsesAnIndexTwice) {
  uint64_t first = LevelRegistry::get_next_idx();
  LevelRegistry::release_idx(first);
  uint64_t second = LevelRegistry::get_next_idx();
  EXPECT_GT(second, first);
  EXPECT_EQ(LevelRegistry::try_get_by_idx(first), nullptr);
  LevelRegistry::release_idx(second);
}

TEST_F(LevelRegistryTest, SaysWhichLevelsAreOpenWhenOneIsNot) {
  uint64_t outer = LevelRegistry::get_next_idx();
  std::string what = error_of([&] { LevelRegistry::get_by_idx(outer + 7); });
  EXPECT_THAT(what, HasSubstr("level " + std::to_string(outer + 7) + " is not open"));
  EXPECT_THAT(what, HasSubstr("open on this thread: [" + std::to_string(outer) + "]"));
  LevelRegistry::release_idx(outer);
}

TEST_F(LevelRegistryTest, RefusesToReleaseOutOfOrderAndNamesTheOpenLevels) {
  uint64_t outer = LevelRegistry::get_next_idx();
  uint64_t inner = LevelRegistry::get_next_idx();
  std::string both = "[" + std::to_string(outer) + ", " + std::to_string(inner) + "]";
  EXPECT_THAT(error_of([&] { LevelRegistry::release_idx(outer); }), HasSubstr(both));
  EXPECT_THAT(active_levels(), ElementsAre(outer, inner)) << "a refused release changes nothing";
  LevelRegistry::release_idx(inner);
  LevelRegistry::release_idx(outer);
}

TEST_F(LevelRegistryTest, RefusesToReleaseTwice) {
  uint64_t idx = LevelRegistry::get_next_idx();
  LevelRegistry::release_idx(idx);
  EXPECT_THAT(error_of([&] { LevelRegistry::release_idx(idx); }),
              HasSubstr("it is not open. Levels open on this thread: none"));
}

TEST_F(LevelRegistryTest, IsKnownToEveryThreadButActiveOnItsOwn) {
  uint64_t idx = LevelRegistry::get_next_idx();
  std::string refused;
  std::thread([&] {
    EXPECT_NE(LevelRegistry::try_get_by_idx(idx), nullptr);
    EXPECT_FALSE(is_active_here(idx));
    refused = error_of([&] { LevelRegistry::release_idx(idx); });
  }).join();
  EXPECT_THAT(refused, HasSubstr("another thread opened it"));
  EXPECT_TRUE(is_active_here(idx));
  LevelRegistry::release_idx(idx);
}

TEST_F(LevelRegistryTest, GivesEachThreadItsOwnOrder) {
  uint64_t mine = LevelRegistry::get_next_idx();
  uint64_t theirs = 0;
  std::promise<void> opened, released;
  std::thread other([&] {
    theirs = LevelRegistry::get_next_idx();
    opened.set_value();
    released.get_future().wait();
    LevelRegistry::release_idx(theirs);
  });
  opened.get_future().wait();
  EXPECT_GT(theirs, mine);
  LevelRegistry::release_idx(mine);  // the younger level of the other thread is not in the way
  released.set_value();
  other.join();
}

class RecordingLayer : public LevelLayer {
 public:
  RecordingLayer(const bool* stuck, int* left) : stuck_(stuck), left_(left) {}
  void check_can_leave() const override { TORCH_CHECK(!*stuck_, "a layer above is still open"); }
  void leave() noexcept override { ++*left_; }

 private:
  const bool* stuck_;
  int* left_;
};

TEST_F(LevelRegistryTest, LeavesTheLayerOnceAndOnlyWhenItCanGo) {
  bool stuck = true;
  int left = 0;
  uint64_t idx = LevelRegistry::get_next_idx();
  LevelRegistry::get_by_idx(idx)->attach(std::make_unique<RecordingLayer>(&stuck, &left));
  EXPECT_THAT(error_of([&] { LevelRegistry::release_idx(idx); }), HasSubstr("a layer above"));
  EXPECT_NE(LevelRegistry::try_get_by_idx(idx), nullptr) << "a refused release changes nothing";
  EXPECT_TRUE(is_active_here(idx));
  EXPECT_EQ(left, 0);
  stuck = false;
  LevelRegistry::release_idx(idx);
  EXPECT_EQ(left, 1);
}

}  // namespace
}  // namespace overdrive::forward_ad
