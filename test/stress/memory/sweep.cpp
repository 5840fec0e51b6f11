#include "test/stress/memory/sweep.h"

#include "bench/support/same_bits.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>

namespace overdrive::test {
namespace {

enum class End { kRight, kNoMemory, kWrong };

bool is_about_memory(const std::string& text) {
  return text.find("memory") != std::string::npos || text.find("bad_alloc") != std::string::npos;
}

std::string difference(const Tensors& got, const Tensors& expected) {
  if (got.size() != expected.size()) return "another number of results";
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i].defined() != expected[i].defined()) return "result " + std::to_string(i) + " is not there";
    if (got[i].defined() && !bench::same_bits(got[i], expected[i])) {
      return "result " + std::to_string(i) + " has other bits";
    }
  }
  return "";
}

// One attempt, and what is wrong with it.
struct Attempt {
  End end = End::kRight;
  std::string wrong;
};

Attempt attempt(const Work& work, const Tensors& expected, Memory which, int64_t nth) {
  Attempt result;
  const std::function<Tensors()> act = work();
  const NoMemory armed(which, nth);
  try {
    const Tensors got = act();
    result.wrong = difference(got, expected);
  } catch (const std::bad_alloc&) {
    result.end = End::kNoMemory;
  } catch (const c10::Error& error) {  // what() looks up the names of all frames
    result.end = End::kNoMemory;
    if (!is_about_memory(error.msg())) result.wrong = "another error: " + error.msg();
  } catch (const std::exception& error) {
    result.end = End::kNoMemory;
    result.wrong = std::string("another error: ") + error.what();
  }
  return result;
}

// Threads of packers let go of a tensor a little later than the call that they work for.
int64_t settled_blocks(int64_t expected, int polls) {
  for (int i = 0; i < polls && live_blocks() > expected; ++i) ::usleep(500);
  return live_blocks();
}

// Overdrive keeps the texts of the last errors, and forgets dead entries of a table now and then. So the number
// of blocks goes up and down; a leak moves its lowest point, by one each time.
bool leaks(const Work& work, const Tensors& expected, Memory which, int64_t nth) {
  constexpr int kTimes = 40;
  std::array<int64_t, 2> lowest{};
  for (int64_t& low : lowest) {
    low = std::numeric_limits<int64_t>::max();
    for (int i = 0; i < kTimes; ++i) {
      attempt(work, expected, which, nth);
      work()();
      low = std::min(low, settled_blocks(low, /*polls=*/1));
    }
  }
  return lowest[1] - lowest[0] >= kTimes;
}

}  // namespace

// The first pass makes everything that is made once. The second one must leave nothing.
void sweep(const std::string& name, Memory which, const Work& work) {
  Tensors expected;
  for (const at::Tensor& result : work()()) expected.push_back(result.defined() ? result.clone() : result);
  constexpr int kMostLooks = 3;
  int64_t tried = 0, errors = 0, most_blocks = 0;
  int looks = 0;
  for (int pass = 0; pass < 2; ++pass) {
    tried = errors = 0;
    for (int64_t nth = 1;; ++nth) {
      const Attempt faulty = attempt(work, expected, which, nth);
      const bool happened = NoMemory::happened();
      const std::string after = pass == 0 ? "" : difference(work()(), expected);
      const int64_t blocks_now = settled_blocks(most_blocks, /*polls=*/pass == 0 ? 0 : 4);
      if (pass == 1 && blocks_now > most_blocks && looks < kMostLooks) {
        ++looks;
        EXPECT_FALSE(leaks(work, expected, which, nth)) << name << ": allocation " << nth << " leaks";
      }
      most_blocks = std::max(most_blocks, blocks_now);
      ASSERT_EQ(faulty.wrong, "") << name << ": allocation " << nth;
      ASSERT_EQ(after, "") << name << ": the attempt after allocation " << nth;
      if (!happened) break;
      ++tried;
      errors += faulty.end == End::kNoMemory;
    }
  }
  std::printf("%s: %lld allocations of %s failed, %lld errors reached the caller\n", name.c_str(),
              static_cast<long long>(tried), which == Memory::kOfObjects ? "objects" : "tensors",
              static_cast<long long>(errors));
  EXPECT_GT(errors, 0) << name;
}

}  // namespace overdrive::test
