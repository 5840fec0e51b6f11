#include "test/support/fake/device_contract.h"

#include <ATen/Parallel.h>
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

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

// Of this thread, as OpenMP itself has it: at::get_num_threads() would set up a thread that nobody has set up.
int intra_op_threads() {
  static auto* const of_openmp = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  return of_openmp != nullptr ? of_openmp() : at::get_num_threads();
}

// {x on 0} --> {on 1} --> loss: the first backward of the process. Its threads, of either engine, have just
// been started, so that what they have of the caller can be seen: as many intra-op threads.
class FirstBackward : public testing::Environment {
  void SetUp() override {
    const char* first = std::getenv("OVERDRIVE_TEST_FIRST");
    if (first == nullptr) return;
    ASSERT_TRUE(std::string(first) == "ours" || std::string(first) == "stock") << first;
    if (std::string(first) == "ours") install();
    constexpr int kIntraOpThreads = 3;
    at::set_num_threads(kIntraOpThreads);
    int seen = 0;
    const at::Tensor x = device_leaf(0);
    x.register_hook([&](const at::Tensor&) { seen = intra_op_threads(); });
    (x * 3).to(fake::device(1)).sum().backward();
    EXPECT_EQ(seen, kIntraOpThreads);
    EXPECT_TRUE(torch::equal(x.grad().cpu(), torch::full({2}, 3.0)));
    uninstall();
  }
};
const auto* const first_backward = testing::AddGlobalTestEnvironment(new FirstBackward);

// Of this process.
void for_each_thread(const std::function<void(pid_t id, const std::string& name)>& body) {
  DIR* tasks = opendir("/proc/self/task");
  while (const dirent* entry = readdir(tasks)) {
    std::ifstream file(std::string("/proc/self/task/") + entry->d_name + "/comm");
    std::string name;
    if (std::getline(file, name)) body(std::atoi(entry->d_name), name);
  }
  closedir(tasks);
}

}  // namespace

std::vector<std::string> threads_named(const std::string& prefix) {
  std::vector<std::string> names;
  for_each_thread([&](pid_t, const std::string& name) {
    if (name.rfind(prefix, 0) == 0) names.push_back(name);
  });
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> workers_left() {
  settle([] { return threads_named("od-").empty(); });
  return threads_named("od-");
}

double cpu_seconds_of_threads_named(const std::string& prefix) {
  double seconds = 0;
  for_each_thread([&](pid_t id, const std::string& name) {
    if (name.rfind(prefix, 0) != 0) return;
    // The clock of a thread by its id, as the kernel numbers them; the C library gives it for its handle only.
    constexpr clockid_t kOfThread = 4, kProcessorTime = 2;
    timespec time{};
    if (clock_gettime(static_cast<clockid_t>(~static_cast<unsigned>(id) << 3) | kOfThread | kProcessorTime,
                      &time) == 0)
      seconds += static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  });
  return seconds;
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
  fake::on_set_device(nullptr);
  // Threads of stock's let go of their last node a moment after the caller has returned.
  settle([] { return FunctionNode::live() == 0; });
  ContractBase::TearDown();
  EXPECT_THAT(workers_left(), testing::IsEmpty()) << "a worker outlived uninstall()";
  EXPECT_THAT(fake::violations(), testing::IsEmpty()) << "a kernel did not wait";
  fake::clear_violations();
}

}  // namespace overdrive::test
