// Base of the checkpoint tests: Overdrive installed, a known seed, comparisons bit for bit with the plain
// model, and a teardown that fails when a flag stays up or the default dtype changed.
#pragma once

#include "bench/support/same_bits.h"
#include "checkpoint/checkpoint.h"
#include "engine/engine.h"
#include "test/support/error_of.h"
#include "test/support/pch.h"
#include "test/support/timeline.h"

#include <functional>
#include <string>

namespace overdrive::checkpoint {

using at::Tensor;
using test::error_of;
using test::Events;
using test::Timeline;
using testing::ElementsAre;
using testing::HasSubstr;

inline const Options kEarlyForm{.form = Form::kEarly};

inline testing::AssertionResult same_bits(const Tensor& got, const Tensor& want) {
  if (got.defined() != want.defined()) {
    return testing::AssertionFailure() << (got.defined() ? "defined" : "undefined") << ", the other is not";
  }
  if (!got.defined()) return testing::AssertionSuccess();
  if (got.sizes() != want.sizes() || got.dtype() != want.dtype()) {
    return testing::AssertionFailure()
           << got.dtype() << got.sizes() << " instead of " << want.dtype() << want.sizes();
  }
  if (bench::same_bits(got, want)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "off by " << (got - want).abs().max().item<double>();
}

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    torch::manual_seed(3);
    x = at::randn({4, 8}).requires_grad_();
    weight = at::randn({8, 8}).requires_grad_();
  }
  void TearDown() override {
    EXPECT_FALSE(is_checkpointing());
    EXPECT_FALSE(is_recomputing());
    EXPECT_TRUE(c10::GradMode::is_enabled());
    EXPECT_EQ(c10::get_default_dtype_as_scalartype(), at::kFloat);
  }

  Tensor block(const Tensor& input) const { return at::linear(input, weight).tanh().sin(); }
  void clear_gradients() {
    x.mutable_grad() = Tensor();
    weight.mutable_grad() = Tensor();
  }

  // The value of `plain` and of `checkpointed`, and what their backwards leave in x and weight.
  void expect_same(const std::function<Tensor()>& plain, const std::function<Tensor()>& checkpointed) {
    clear_gradients();
    const Tensor want = plain();
    want.sum().backward();
    const Tensor x_grad = x.grad().defined() ? x.grad().clone() : Tensor();
    const Tensor weight_grad = weight.grad().defined() ? weight.grad().clone() : Tensor();
    clear_gradients();
    const Tensor got = checkpointed();
    got.sum().backward();
    EXPECT_TRUE(same_bits(got.detach(), want.detach()));
    EXPECT_TRUE(same_bits(x.grad(), x_grad)) << "gradient of x";
    EXPECT_TRUE(same_bits(weight.grad(), weight_grad)) << "gradient of weight";
  }

  ScopedInstall installed_;
  Tensor x, weight;
};

class BothForms : public CheckpointTest, public testing::WithParamInterface<Form> {
 protected:
  Options options() const { return {.form = GetParam()}; }
};

inline std::string form_name(const testing::TestParamInfo<Form>& info) {
  return info.param == Form::kEarly ? "Early" : "OnDemand";
}

#define OVERDRIVE_BOTH_FORMS(suite)  \
  class suite : public BothForms {}; \
  INSTANTIATE_TEST_SUITE_P(Form, suite, testing::Values(Form::kEarly, Form::kOnDemand), form_name)

}  // namespace overdrive::checkpoint
