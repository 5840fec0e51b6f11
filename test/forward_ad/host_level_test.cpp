// LibTorch's own dual level 0 beside ours.
#include "test/forward_ad/forward_ad_fixture.h"

namespace overdrive::forward_ad {
namespace {

using testing::HasSubstr;
namespace stock = torch::autograd::forward_ad;

using HostLevel = ForwardAdTest;

bool host_is_entered() { return torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr; }

TEST_F(HostLevel, IsEnteredWithTheFirstLevelAndLeftWithTheLast) {
  {
    DualLevel outer;
    EXPECT_TRUE(host_is_entered());
    { DualLevel inner; }
    EXPECT_TRUE(host_is_entered());
  }
  EXPECT_FALSE(host_is_entered());
}

TEST_F(HostLevel, IsBorrowedWhenTheProgramHoldsIt) {
  uint64_t programs = stock::enter_dual_level();
  at::Tensor x = random({3}), v = random({3}), w = random({3});
  at::Tensor theirs = at::_make_dual(x, v, static_cast<int64_t>(programs));
  at::Tensor slope;
  {
    DualLevel level;
    slope = unpack_dual(make_dual(theirs, w, level).pow(2), level).tangent;
  }
  EXPECT_TRUE(close(slope, 2 * x * w));
  // Their tangent of our tangent: the mixed second derivative.
  EXPECT_TRUE(close(std::get<1>(at::_unpack_dual(slope, static_cast<int64_t>(programs))), 2 * v * w));
  EXPECT_TRUE(host_is_entered()) << "a borrowed level is not ours to leave";
  stock::exit_dual_level(programs);
}

TEST_F(HostLevel, TellsWhenTheProgramLeavesABorrowedLevel) {
  uint64_t programs = stock::enter_dual_level();
  DualLevel level;
  at::Tensor dual = make_dual(random({3}), random({3}), level);
  stock::exit_dual_level(programs);
  EXPECT_THAT(error_of([&] { make_dual(dual, dual, level); }), HasSubstr("had borrowed from the program"));
  EXPECT_THAT(error_of([&] { unpack_dual(dual, level); }), HasSubstr("was exited by somebody else"));
  EXPECT_THAT(error_of([&] { DualLevel another; }), HasSubstr("was exited by somebody else"));
  EXPECT_THAT(error_of([&] { level.close(); }), HasSubstr("was exited by somebody else"));
}

TEST_F(HostLevel, WorksAgainOnceTheLevelsThatLostItAreClosed) {
  {
    DualLevel level;
    stock::exit_dual_level(0);  // the program leaves a level it never entered
    EXPECT_THAT(error_of([&] { unpack_dual(random({1}), level); }), HasSubstr("had entered"));
  }
  DualLevel level;
  EXPECT_TRUE(unpack_dual(make_dual(random({3}), random({3}), level), level).tangent.defined());
}

TEST_F(HostLevel, RefusesTheProgramWhileOursAreOpen) {
  DualLevel level;
  EXPECT_THAT(error_of([] { stock::enter_dual_level(); }),
              HasSubstr("Nested forward mode AD is not supported"));
}

}  // namespace
}  // namespace overdrive::forward_ad
