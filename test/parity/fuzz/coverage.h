// What a set of programs reached: for every op with every feature of a backward it took part in,
// and for every pair of features in one backward, the number of programs. Plain values.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace overdrive::fuzz {

// A hook's bit is set for the op whose node it hung on (a post-accumulate-grad hook: for every op of
// the graph), the others for each op of a backward that was so.
enum Feature : int {
  kTensorHook,
  kRetainsGradHook,
  kNodePreHook,
  kNodePostHook,
  kPostAccumulateHook,
  kPruned,
  kCreateGraph,
  kInPlaceOnView,
  kThreads,
  kNested,
  kThrowing,
  kAnomaly,
  kFeatures
};
const char* feature_name(int feature);

// One program's share.
struct Reached {
  std::vector<uint32_t> by_op;  // bits of Feature, by op_index; kReachedAtAll too
  std::array<uint32_t, kFeatures> with{};
  Reached();
  void backward(uint32_t bits);
};
inline constexpr uint32_t kReachedAtAll = 1U << kFeatures;

class Coverage {
 public:
  Coverage();
  void add(const Reached& reached);
  int64_t programs() const { return programs_; }
  std::string table() const;
  // Names of the cells that no program reached.
  std::vector<std::string> empty_cells() const;
  // Their indices.
  std::vector<size_t> ops_with_empty_cells() const;

 private:
  bool is_empty(size_t op, int feature) const;

  int64_t programs_ = 0;
  std::vector<std::array<int64_t, kFeatures + 1>> by_op_;
  std::array<std::array<int64_t, kFeatures>, kFeatures> pairs_{};
};

}  // namespace overdrive::fuzz
