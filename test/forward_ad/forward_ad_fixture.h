// Base of the forward_ad tests: double tensors, and a teardown that fails when a test
// leaves a level open, a layer on the stack or LibTorch's own level entered.
#pragma once

#include "forward_ad/forward_ad.h"
#include "forward_ad/levels/level_registry.h"
#include "test/support/error_of.h"

#include <ATen/functorch/DynamicLayer.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <string>

namespace overdrive::forward_ad {

using test::error_of;

inline bool nothing_is_open() {
  return LevelRegistry::open_count() == 0 && active_levels().empty() &&
         at::functorch::getDynamicLayerStack().empty() && !torch::autograd::ForwardADLevel::try_get_by_idx(0);
}

class ForwardAdTest : public testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(7); }
  void TearDown() override {
    EXPECT_EQ(LevelRegistry::open_count(), 0u) << "a level was left open";
    EXPECT_TRUE(active_levels().empty()) << "this thread is still inside " << active_levels_text();
    EXPECT_TRUE(at::functorch::getDynamicLayerStack().empty()) << "a layer was left on the stack";
    EXPECT_EQ(torch::autograd::ForwardADLevel::try_get_by_idx(0), nullptr)
        << "LibTorch's own level was left entered";
    EXPECT_TRUE(c10::GradMode::is_enabled());
  }

  static at::Tensor random(at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); }
  static at::Tensor number(double value) { return at::scalar_tensor(value, at::kDouble); }
};

inline testing::AssertionResult close(const at::Tensor& got, const at::Tensor& want, double tolerance = 1e-12) {
  if (!got.defined() || !want.defined()) return testing::AssertionFailure() << "an undefined tensor";
  if (got.sizes() != want.sizes()) {
    return testing::AssertionFailure() << "shape " << got.sizes() << " instead of " << want.sizes();
  }
  double error = got.numel() == 0 ? 0 : (got - want).abs().max().item<double>();
  double scale = want.numel() == 0 ? 1 : std::max(1.0, want.abs().max().item<double>());
  if (error <= tolerance * scale) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "off by " << error << " where the largest element is " << scale;
}

}  // namespace overdrive::forward_ad
