// spill_to_disk: the bits come back, nothing is left behind, and disks that fail lose nothing.
#include "hooks/packers/spill_to_disk.h"

#include "test/hooks/packers_fixture.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>

namespace overdrive::hooks {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class Spilling : public Packers {
 protected:
  void SetUp() override {
    Packers::SetUp();
    folder_ = fs::temp_directory_path() / ("overdrive-test-" + std::to_string(::getpid()));
    fs::create_directory(folder_);
  }
  void TearDown() override {
    fs::remove_all(folder_);
    Packers::TearDown();
  }
  HooksPtr spill(bool drop_cached = false) {
    return spill_to_disk(
        {.folder = folder_, .min_bytes = 0, .max_waiting_bytes = 0, .drop_cached = drop_cached});
  }
  // Descriptors of this process that are open on files of the folder.
  std::vector<int> open_files() const {
    std::vector<int> found;
    for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      const std::string target = fs::read_symlink(entry.path(), gone).string();
      if (target.starts_with(folder_.string())) found.push_back(std::stoi(entry.path().filename()));
    }
    return found;
  }
  // The share of the first bytes of the one open file that the system has in memory.
  double cached_share(size_t bytes) const {
    void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, open_files().at(0), 0);
    TORCH_CHECK(mapped != MAP_FAILED, std::strerror(errno));
    std::vector<unsigned char> pages((bytes + 4095) / 4096);
    ::mincore(mapped, bytes, pages.data());
    ::munmap(mapped, bytes);
    const auto there = std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; });
    return static_cast<double>(there) / static_cast<double>(pages.size());
  }
  bool lies_in_memory() const {
    struct statfs about {};
    return ::statfs(folder_.c_str(), &about) == 0 && about.f_type == TMPFS_MAGIC;
  }
  // Packs one more, so that what was packed before has been written: the second waits for the first.
  static void settle(const HooksPtr& hooks) {
    const Tensor small = at::ones({1});
    for (int i = 0; i < 2; ++i) through(hooks, small);
  }

  fs::path folder_;
};

TEST_F(Spilling, BringsBackTheBits) {
  for (const HooksPtr& hooks : {spill(), spill(/*drop_cached=*/true)}) {
    for (const Tensor& x : {at::randn({300, 5}), at::randn({4, 6}).t(), at::randn({4, 6}).narrow(1, 0, 2),
                            at::randint(100, {9}, at::kLong), at::tensor({kNaN, kInf})}) {
      const SaveInfo info = info_of(x);
      Packed packed = hooks->pack(x, info);
      settle(hooks);
      for (int twice = 0; twice < 2; ++twice) {
        const Tensor back = hooks->unpack(packed, {.node = nullptr, .save = info});
        EXPECT_TRUE(same_bits(back.contiguous(), x.contiguous()));
        EXPECT_NE(back.data_ptr(), x.data_ptr()) << "it never left";
      }
    }
  }
}

TEST_F(Spilling, LeavesNoCopyInMemoryWhenToldTo) {
  if (lies_in_memory()) GTEST_SKIP() << folder_ << " is itself in memory";
  const Tensor x = at::randn({1 << 18});
  const SaveInfo info = info_of(x);
  for (const bool drop_cached : {false, true}) {
    const HooksPtr hooks = spill(drop_cached);
    Packed packed = hooks->pack(x, info);
    settle(hooks);
    EXPECT_NEAR(cached_share(x.nbytes()), drop_cached ? 0 : 1, 0.1) << "written";
    EXPECT_TRUE(same_bits(hooks->unpack(packed, {.node = nullptr, .save = info}), x));
    EXPECT_NEAR(cached_share(x.nbytes()), drop_cached ? 0 : 1, 0.1) << "read";
    packed = {};
    settle(hooks);
    for (int i = 0; i < 5'000 && !open_files().empty(); ++i) ::usleep(1'000);
  }
}

TEST_F(Spilling, LeavesNothingBehindAndIsNobodyElsesToRead) {
  const HooksPtr hooks = spill();
  const Tensor x = at::randn({100});
  const mode_t mask = ::umask(0);
  std::optional<Packed> packed = hooks->pack(x, info_of(x));
  ::umask(mask);
  EXPECT_TRUE(fs::is_empty(folder_)) << "the file has a name";
  ASSERT_EQ(open_files().size(), 1u);
  struct stat about {};
  ASSERT_EQ(::fstat(open_files()[0], &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
  packed.reset();
  settle(hooks);
  for (int i = 0; i < 5'000 && !open_files().empty(); ++i) ::usleep(1'000);  // the writer lets go of the last
  EXPECT_TRUE(open_files().empty()) << "the graph is gone, its file is not";
}

TEST_F(Spilling, AShortReadNamesTheFile) {
  const HooksPtr hooks = spill();
  const Tensor x = at::randn({100});
  Packed packed = hooks->pack(x, info_of(x));
  settle(hooks);
  ASSERT_EQ(::ftruncate(open_files()[0], 10), 0);
  const std::string error =
      message_of([&] { hooks->unpack(packed, {.node = nullptr, .save = info_of(x)}); }).message;
  EXPECT_THAT(error, testing::AllOf(HasSubstr(folder_.string()), HasSubstr("shorter")));
}

TEST_F(Spilling, AFullDiskLosesNothing) {
  const HooksPtr hooks = spill();
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small {
    .rlim_cur = 100, .rlim_max = before.rlim_max
  };
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Tensor x = at::randn({100}), y = at::randn({100});
  Packed packed = hooks->pack(x, info_of(x));
  const std::string error = message_of([&] { hooks->pack(y, info_of(y)); }).message;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(error, testing::AllOf(HasSubstr("cannot write 300 bytes"), HasSubstr(folder_.string())));
  EXPECT_TRUE(same_bits(hooks->unpack(packed, {.node = nullptr, .save = info_of(x)}), x));
  EXPECT_TRUE(same_bits(through(hooks, y), y)) << "it does not recover";
}

TEST_F(Spilling, AFolderThatIsNotThereIsAnError) {
  const HooksPtr hooks = spill();
  EXPECT_THAT(message_of([] { spill_to_disk({.folder = "/no/such/folder"}); }).message,
              testing::AllOf(HasSubstr("\"/no/such/folder\""), HasSubstr("No such file")));
  fs::remove_all(folder_);
  const Tensor x = at::randn({100});
  EXPECT_THAT(message_of([&] { hooks->pack(x, info_of(x)); }).message, HasSubstr(folder_.string()));
}

// Written or not: the writer may have read half of the change.
TEST_F(Spilling, ATensorThatIsChangedIsAnError) {
  const HooksPtr hooks = spill();
  const Tensor x = at::randn({100});
  Packed packed = hooks->pack(x, info_of(x));
  x.add_(1);
  const SaveInfo info = info_of(x);
  EXPECT_THAT(message_of([&] { hooks->unpack(packed, {.node = nullptr, .save = info}); }).message,
              HasSubstr("changed in place"));
}

TEST_F(Spilling, SmallTensorsStay) {
  const HooksPtr hooks = spill_to_disk({.folder = folder_, .min_bytes = 100});
  EXPECT_FALSE(hooks->wants(at::ones({3}), info_of(at::ones({3}))));
  EXPECT_TRUE(hooks->wants(at::ones({25}), info_of(at::ones({25}))));
  EXPECT_THAT(message_of([&] { spill_to_disk({.folder = folder_, .min_bytes = -1}); }).message,
              HasSubstr("-1"));
}

}  // namespace
}  // namespace overdrive::hooks
