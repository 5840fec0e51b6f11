// The fixture of the contract tests: installs the engine under test, puts stock back,
// and fails when the test left something behind: a node, a thread, a watched tensor, a
// current graph task, a changed thread-local. Owned by gtest; its thread runs the test.
// Threads that a test starts it must join itself.
#pragma once

#include "test/support/engines.h"
#include "test/support/graph.h"

#include <string>
#include <vector>

namespace overdrive::test {

class ContractBase : public testing::Test {
 public:
  // The tensor must be gone when the test ends: an engine that keeps it leaks a gradient.
  void watch(const at::Tensor& tensor) { watched_.emplace_back(tensor.getIntrusivePtr()); }

  // Overdrive runs everything itself but foreign graph tasks; say so where a test has some.
  void allow_forwarding() { forwarding_allowed_ = true; }

  // Stock starts threads for nested backwards deeper than 60 and never ends them.
  void allow_new_threads() { new_threads_allowed_ = true; }

 protected:
  void SetUp() override;
  void TearDown() override;

 private:
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  std::vector<WeakTensor> watched_;
  bool new_threads_allowed_ = false;
  bool forwarding_allowed_ = false;
  int threads_before_ = 0;
  int nodes_before_ = 0;
  std::string state_before_;
};

template <typename E>
class EngineContract : public ContractBase {
 protected:
  void SetUp() override {
    ContractBase::SetUp();
    E::install();
  }
};

// One typed suite per file, named after the behaviour: OVERDRIVE_CONTRACT(Order);
#define OVERDRIVE_CONTRACT(name)                  \
  template <typename E>                           \
  class name : public test::EngineContract<E> {}; \
  TYPED_TEST_SUITE(name, test::Engines, test::EngineNames)

}  // namespace overdrive::test
