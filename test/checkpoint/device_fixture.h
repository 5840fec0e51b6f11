// Base of the checkpoint tests on the fake accelerator: at the end no kernel may have used what it did not wait
// for.
#pragma once

#include "test/checkpoint/checkpoint_fixture.h"
#include "test/support/fake/device_contract.h"

namespace overdrive::checkpoint {

class DeviceCheckpointTest : public CheckpointTest {
 protected:
  void SetUp() override {
    CheckpointTest::SetUp();
    test::fake::clear_violations();
  }
  void TearDown() override {
    test::fake::on_kernel(nullptr);
    test::fake::use_own_generators(false);
    EXPECT_THAT(test::fake::violations(), testing::IsEmpty());
    CheckpointTest::TearDown();
  }
};

}  // namespace overdrive::checkpoint
