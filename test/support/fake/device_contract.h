// The fixture of contract tests on the fake accelerator: that of ContractBase, and at the end no kernel may
// have used what it did not wait for and no worker of ours may be left. OVERDRIVE_TEST_FIRST=stock|ours says
// which engine runs the first backward of the process (the host's pool of threads belongs to the first).
#pragma once

#include "test/support/contract.h"
#include "test/support/fake/accelerator.h"

#include <c10/core/AutogradState.h>

#include <string>
#include <vector>

namespace overdrive::test {

// Names of the threads of this process that begin with `prefix`, sorted.
std::vector<std::string> threads_named(const std::string& prefix);
// Names of Overdrive's workers that live on. The system lists a thread for a moment after it was joined.
std::vector<std::string> workers_left();
std::string name_of_this_thread();
// Processor time that those threads have used so far.
double cpu_seconds_of_threads_named(const std::string& prefix);

// A leaf of ones (or `value`) on a device.
at::Tensor device_leaf(int device, at::IntArrayRef sizes = {2}, double value = 1);

class DeviceContractBase : public ContractBase {
 protected:
  void SetUp() override;
  void TearDown() override;
};

template <typename E>
class DeviceContract : public DeviceContractBase {
 protected:
  void SetUp() override {
    DeviceContractBase::SetUp();
    E::install();
  }
};

// Whether the engine under test may run two devices of a backward at the same time.
template <typename E>
bool runs_devices_apart() {
  const char* threads = std::getenv("OVERDRIVE_THREADS");
  return !E::kOverdrive || threads == nullptr || std::string(threads) != "caller";
}

#define OVERDRIVE_DEVICE_CONTRACT(name)           \
  template <typename E>                           \
  class name : public test::DeviceContract<E> {}; \
  TYPED_TEST_SUITE(name, test::Engines, test::EngineNames)

}  // namespace overdrive::test
