// Forks with the engine installed: fork_program WHEN. The child runs backwards of its own and
// leaves by exit(); the parent goes on training. Exit status 0 when both were right.
#include "engine/engine.h"

#include "test/support/pch.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

namespace {

using torch::Tensor;

void check(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "failed: %s\n", what);
  std::_Exit(3);
}

void backward(const std::function<void()>& hook = [] {}) {
  Tensor x = torch::ones({2}, torch::requires_grad());
  Tensor y = x * 3;
  y.register_hook([&](const Tensor&) { hook(); });
  y.sum().backward();
  check(torch::equal(x.grad(), torch::full({2}, 3.0)), "gradient");
}

long threads() {
  namespace fs = std::filesystem;
  return std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator());
}

// A thread that was joined is listed until the system has taken it apart.
bool one_thread_is_left() {
  for (int i = 0; i < 5'000 && threads() > 1; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return threads() == 1;
}

void train(int steps) {
  const uint64_t before = overdrive::stats().backwards;
  for (int i = 0; i < steps; ++i) backward();
  check(overdrive::stats().backwards == before + static_cast<uint64_t>(steps), "every backward was ours");
}

[[noreturn]] void be_the_child() {
  check(threads() == 1, "a child starts with one thread");
  check(overdrive::installed(), "still installed in the child");
  train(3);
  std::thread([] { train(3); }).join();
  check(one_thread_is_left(), "the child has only threads that it started");
  check(overdrive::uninstall(), "uninstall in the child");
  backward();
  std::exit(0);
}

void fork_and_wait() {
  const pid_t child = fork();
  check(child >= 0, "fork");
  if (child == 0) be_the_child();
  int status = -1;
  check(waitpid(child, &status, 0) == child && status == 0, "the child's exit status");
}

void before_the_first_backward() { fork_and_wait(); }

void after_a_backward() {
  train(2);
  fork_and_wait();
}

void twice() {
  fork_and_wait();
  train(1);
  fork_and_wait();
}

void during_another_threads_backward() {
  std::promise<void> inside, go_on;
  std::thread other([&] {
    backward([&] {
      inside.set_value();
      go_on.get_future().wait();
    });
  });
  inside.get_future().wait();
  fork_and_wait();
  go_on.set_value();
  other.join();
}

// Another thread switches, counts and runs backwards without rest: a lock that it holds at the
// moment of the fork must not stay locked in the child. Not forked inside its backward: there it may hold a
// lock of LibTorch's, for whose profiler each state that is set counts, and on stock too the child would wait
// for it for ever.
void while_another_thread_switches() {
  std::atomic<bool> stop{false};
  std::mutex running;
  std::thread other([&] {
    while (!stop) {
      overdrive::ScopedInstall scope;
      {
        const std::lock_guard lock(running);
        backward();
      }
      overdrive::stats();
    }
  });
  for (int i = 0; i < 8; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const std::lock_guard lock(running);
    fork_and_wait();
  }
  stop = true;
  other.join();
}

// The child comes back from the hook and finishes the backward that its parent began.
void inside_a_hook() {
  pid_t child = -1;
  backward([&] {
    child = fork();
    check(child >= 0, "fork");
  });
  if (child == 0) be_the_child();
  int status = -1;
  check(waitpid(child, &status, 0) == child && status == 0, "the child's exit status");
}

struct When {
  const char* name;
  void (*fork)();
};

const When kWhen[] = {
    {"before_the_first_backward", before_the_first_backward},
    {"after_a_backward", after_a_backward},
    {"twice", twice},
    {"during_another_threads_backward", during_another_threads_backward},
    {"while_another_thread_switches", while_another_thread_switches},
    {"inside_a_hook", inside_a_hook},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc == 1) {
    for (const When& when : kWhen) std::printf("%s\n", when.name);
    return 0;
  }
  for (const When& when : kWhen) {
    if (std::strcmp(argv[1], when.name) != 0) continue;
    overdrive::install();
    when.fork();
    train(2);
    return 0;
  }
  return 2;
}
