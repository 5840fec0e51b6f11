// What the tests of our workers share. Made and used by the test's thread.
#pragma once

#include "test/support/fake/device_contract.h"

#include <vector>

namespace overdrive::test {

class Workers : public DeviceContractBase {
 protected:
  void use(engine::Threads threads) {
    Options options = Options::from_environment();
    options.threads = threads;
    install(options);
  }
  void SetUp() override {
    DeviceContractBase::SetUp();
    use(engine::Threads::kAuto);
  }
};

// {x on the first} --> each device --> loss
inline at::Tensor backward_over(const std::vector<int>& devices) {
  const at::Tensor x = device_leaf(devices.front());
  at::Tensor y = x * 2;
  for (const int device : devices) y = y.to(fake::device(device)) * 1;
  y.sum().backward();
  EXPECT_TRUE(torch::equal(x.grad().cpu(), torch::full({2}, 2.0)));
  return x;
}

}  // namespace overdrive::test
