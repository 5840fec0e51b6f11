#include "test/parity/fuzz/coverage.h"

#include <cstdio>
#include <string_view>

#include "test/parity/fuzz/ops.h"

namespace overdrive::fuzz {

const char* feature_name(int feature) {
  constexpr const char* kNames[kFeatures] = {"tensor", "retains", "pre",     "post",   "post-acc", "pruned",
                                             "create", "inplace", "threads", "nested", "throws",   "anomaly"};
  return kNames[feature];
}

Reached::Reached() : by_op(ops().size(), 0) {}

void Reached::backward(uint32_t bits) {
  for (size_t f = 0; f < kFeatures; ++f) {
    if (bits >> f & 1) with[f] |= bits;
  }
}

Coverage::Coverage() : by_op_(ops().size()) {}

void Coverage::add(const Reached& reached) {
  ++programs_;
  for (size_t op = 0; op < by_op_.size(); ++op) {
    for (size_t f = 0; f <= kFeatures; ++f) by_op_[op][f] += reached.by_op[op] >> f & 1;
  }
  for (size_t f = 0; f < kFeatures; ++f) {
    for (size_t g = 0; g < kFeatures; ++g) pairs_[f][g] += reached.with[f] >> g & 1;
  }
}

namespace {

std::string row(const char* name, const int64_t* cells, size_t n) {
  char text[64];
  std::snprintf(text, sizeof text, "%-18s", name);
  std::string line = text;
  for (size_t i = 0; i < n; ++i) {
    std::snprintf(text, sizeof text, " %8lld", static_cast<long long>(cells[i]));
    line += text;
  }
  return line + "\n";
}

std::string header(const char* corner, bool with_all) {
  char text[64];
  std::snprintf(text, sizeof text, "%-18s", corner);
  std::string line = text;
  for (int f = 0; f < kFeatures; ++f) {
    std::snprintf(text, sizeof text, " %8s", feature_name(f));
    line += text;
  }
  return line + (with_all ? "      all\n" : "\n");
}

}  // namespace

std::string Coverage::table() const {
  std::string text = "Programs in which a node of the op took part in such a backward\n" + header("op", true);
  for (size_t op = 0; op < by_op_.size(); ++op) {
    if (ops()[op].group != Group::kConstant) text += row(ops()[op].name, by_op_[op].data(), kFeatures + 1);
  }
  text += "\nPrograms with a backward that was both\n" + header("", false);
  for (int f = 0; f < kFeatures; ++f)
    text += row(feature_name(f), pairs_[static_cast<size_t>(f)].data(), kFeatures);
  return text;
}

// The gradients that these return are refused, and a node whose gradients are refused does not come to its
// post-hooks.
static bool cannot_be(const std::string& op, int feature) {
  return std::string_view(feature_name(feature)) == "post" &&
         (op == "TooMany" || op == "TooFew" || op == "WrongShape");
}

bool Coverage::is_empty(size_t op, int feature) const {
  return by_op_[op][static_cast<size_t>(feature)] == 0 && ops()[op].group != Group::kConstant &&
         !cannot_be(ops()[op].name, feature);
}

std::vector<size_t> Coverage::ops_with_empty_cells() const {
  std::vector<size_t> found;
  for (size_t op = 0; op < by_op_.size(); ++op) {
    for (int f = 0; f < kFeatures; ++f) {
      if (!is_empty(op, f)) continue;
      found.push_back(op);
      break;
    }
  }
  return found;
}

std::vector<std::string> Coverage::empty_cells() const {
  std::vector<std::string> cells;
  for (size_t op = 0; op < by_op_.size(); ++op) {
    for (int f = 0; f < kFeatures; ++f) {
      if (is_empty(op, f)) cells.push_back(std::string(ops()[op].name) + " x " + feature_name(f));
    }
  }
  for (int f = 0; f < kFeatures; ++f) {
    for (int g = 0; g <= f; ++g) {
      if (pairs_[static_cast<size_t>(f)][static_cast<size_t>(g)] == 0) {
        cells.push_back(std::string(feature_name(f)) + " x " + feature_name(g));
      }
    }
  }
  return cells;
}

}  // namespace overdrive::fuzz
