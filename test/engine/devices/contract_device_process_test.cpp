// What a process is to a backward with devices: a child of fork(), and a driver that is not there. Both
// engines, after either of them has run the first backward.
#include "test/support/caught.h"
#include "test/support/child.h"
#include "test/support/fake/device_contract.h"

namespace {

using namespace overdrive;
using test::device_leaf;
using test::holds_in_a_child;
using torch::Tensor;
namespace fake = test::fake;

OVERDRIVE_DEVICE_CONTRACT(DeviceProcess);

// {x on 0} --*2--> --to 1--> loss
void backward_over_two_devices() {
  const Tensor x = device_leaf(0);
  (x * 2).to(fake::device(1)).sum().backward();
  EXPECT_TRUE(torch::equal(x.grad().cpu(), torch::full({2}, 2.0)));
}

void backward_on_the_cpu() {
  const Tensor x = test::leaf(3);
  (x * 2).sum().backward();
  EXPECT_EQ(test::value_of(x.grad()), 2);
}

bool is_refused(void (*backward)()) {
  return test::message_of(backward).message.find("fork-based multiprocessing") != std::string::npos;
}

TYPED_TEST(DeviceProcess, AForkedChildIsRefusedAndTheParentGoesOn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer ends a child that starts a thread when its parent had several";
#endif
  backward_over_two_devices();
  EXPECT_TRUE(holds_in_a_child([] {
    return is_refused(backward_over_two_devices) && is_refused(backward_on_the_cpu) && uninstall() &&
           test::workers_left().empty();
  }));
  backward_over_two_devices();
  backward_on_the_cpu();
}

TYPED_TEST(DeviceProcess, ABackwardOnTheCpuDoesNotMissADriverThatCannotBeReached) {
  fake::set_driver(fake::Driver::kUnreachable);
  const test::Caught caught = test::message_of(backward_on_the_cpu);
  fake::set_driver(fake::Driver::kFine);
  EXPECT_EQ(caught, test::Caught{});
  backward_over_two_devices();
}

}  // namespace
