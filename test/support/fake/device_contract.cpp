#include "test/support/fake/device_contract.h"

#include <dirent.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

namespace overdrive::test {
namespace {

template <typename Done>
void settle(Done&& done) {
  for (int i = 0; i < 5'000 && !done(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// {x on 0} --> {on 1} --> loss: the first backward of the process.
class FirstBackward : public testing::Environment {
  void SetUp() override {
    const char* first = std::getenv("OVERDRIVE_TEST_FIRST");
    if (first == nullptr) return;
    ASSERT_TRUE(std::string(first) == "ours" || std::string(first) == "stock") << first;
    if (std::string(first) == "ours") install();
    const at::Tensor x = device_leaf(0);
    (x * 3).to(fake::device(1)).sum().backward();
    EXPECT_TRUE(torch::equal(x.grad().cpu(), torch::full({2}, 3.0)));
    uninstall();
  }
};
const auto* const first_backward = testing::AddGlobalTestEnvironment(new FirstBackward);

}  // namespace

std::vector<std::string> threads_named(const std::string& prefix) {
  std::vector<std::string> names;
  DIR* tasks = opendir("/proc/self/task");
  while (const dirent* entry = readdir(tasks)) {
    std::ifstream file(std::string("/proc/self/task/") + entry->d_name + "/comm");
    std::string name;
    if (std::getline(file, name) && name.rfind(prefix, 0) == 0) names.push_back(name);
  }
  closedir(tasks);
  std::sort(names.begin(), names.end());
  return names;
}

std::string name_of_this_thread() {
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof name);
  return name;
}

at::Tensor device_leaf(int device, at::IntArrayRef sizes, double value) {
  return torch::full(sizes, value).to(fake::device(device)).detach().requires_grad_(true);
}

void DeviceContractBase::SetUp() {
  ContractBase::SetUp();
  allow_new_threads();  // the host's, one a device
  fake::clear_violations();
}

void DeviceContractBase::TearDown() {
  fake::on_kernel(nullptr);
  // Threads of stock's let go of their last node a moment after the caller has returned.
  settle([] { return FunctionNode::live() == 0; });
  ContractBase::TearDown();
  settle([] { return threads_named("od-").empty(); });
  EXPECT_THAT(threads_named("od-"), testing::IsEmpty()) << "a worker outlived uninstall()";
  EXPECT_THAT(fake::violations(), testing::IsEmpty()) << "a kernel did not wait";
  fake::clear_violations();
}

}  // namespace overdrive::test
