// Base of the tests of hooks: Overdrive installed, a counting hook, and a teardown that fails when a test
// leaves a scope open or nodes alive.
#pragma once

#include "bench/support/same_bits.h"
#include "engine/engine.h"
#include "hooks/hooks.h"
#include "test/support/caught.h"
#include "test/support/graph.h"

#include <atomic>
#include <mutex>
#include <vector>

namespace overdrive::hooks {

using at::Tensor;
using test::Caught;
using test::message_of;

// Keeps copies, so that a packed tensor shares nothing with the one that was saved; notes what it was asked.
class CopyingHooks : public SavedTensorHooks {
 public:
  Packed pack(const Tensor& tensor, const SaveInfo& info) override {
    const std::lock_guard lock(mutex_);
    saves.push_back(info);
    ops.push_back(info.op());
    packed.push_back(tensor.sizes().vec());
    grad_mode_in_pack |= c10::GradMode::is_enabled();
    requires_grad_in_pack |= tensor.requires_grad();
    return {.tensors = {tensor.clone()}, .state = {}};
  }
  Tensor unpack(Packed& from, const UnpackInfo& info) override {
    const std::lock_guard lock(mutex_);
    nodes.push_back(info.node != nullptr ? info.node->name() : "");
    grad_mode_in_unpack |= c10::GradMode::is_enabled();
    return from.tensors[0];
  }
  bool lossless() const override { return is_lossless; }
  std::string name() const override { return "CopyingHooks"; }

  bool is_lossless = true;
  std::vector<SaveInfo> saves;
  std::vector<std::string> ops;
  std::vector<std::vector<int64_t>> packed;
  std::vector<std::string> nodes;
  bool grad_mode_in_pack = false;
  bool grad_mode_in_unpack = false;
  bool requires_grad_in_pack = false;

 private:
  std::mutex mutex_;
};

class HooksTest : public testing::Test {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    torch::manual_seed(7);
    nodes_before_ = test::FunctionNode::live();
  }
  void TearDown() override {
    EXPECT_EQ(active_hooks(), nullptr) << "a scope of hooks was left open";
    EXPECT_TRUE(at::SavedTensorDefaultHooks::is_enabled());
    EXPECT_EQ(test::FunctionNode::live(), nodes_before_) << "nodes are still alive";
  }

  ScopedInstall installed_;
  std::shared_ptr<CopyingHooks> copying_ = std::make_shared<CopyingHooks>();

 private:
  int nodes_before_ = 0;
};

inline Tensor leaf_of(at::IntArrayRef sizes) { return at::randn(sizes).requires_grad_(); }

// Strides too.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.strides() == b.strides() && bench::same_bits(a, b);
}

}  // namespace overdrive::hooks
