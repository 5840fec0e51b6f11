// Forks with the engine installed: fork_program WHEN. The child runs backwards of its own and
// leaves by exit(); the parent goes on training. Exit status 0 when both were right.
#include "checkpoint/checkpoint.h"
#include "engine/base/process_mutex.h"
#include "engine/engine.h"
#include "forward_ad/forward_ad.h"
#include "hooks/hooks.h"
#include "inspect/inspect.h"

#include "test/support/pch.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

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

void fork_and_wait(const std::function<void()>& live_in_the_child = be_the_child) {
  const pid_t child = fork();
  check(child >= 0, "fork");
  if (child == 0) {
    live_in_the_child();
    std::exit(0);
  }
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

// Runs a backward that calls the function in a hook. The child comes back from the hook and finishes the
// backward that its parent began. `after_fork` runs in the parent alone.
void fork_inside(
    const std::function<void(const std::function<void()>&)>& run,
    const std::function<void()>& after_fork = [] {}, const std::function<void()>& live_in_the_child = [] {}) {
  pid_t child = -1;
  run([&] {
    child = fork();
    check(child >= 0, "fork");
    if (child != 0) after_fork();
  });
  if (child == 0) {
    live_in_the_child();
    std::exit(0);
  }
  int status = -1;
  check(waitpid(child, &status, 0) == child && status == 0, "the child's exit status");
}

void inside_a_hook() {
  fork_inside([](const std::function<void()>& hook) { backward(hook); }, [] {}, be_the_child);
}

// Few, because OpenMP has no threads in a child, and waits for them.
Tensor numbers(double factor) { return (torch::linspace(-1, 1, 1024) * factor).requires_grad_(); }

Tensor chain(const Tensor& x, const overdrive::HooksPtr& hooks) {
  const overdrive::SavedTensorHooksGuard scope(hooks);
  Tensor y = x;
  for (int i = 0; i < 6; ++i) y = y.sin();
  return y.sum();
}

void check_gradient(const Tensor& x, const char* what) {
  const Tensor plain = x.detach().clone().requires_grad_();
  chain(plain, nullptr).backward();
  check(torch::equal(x.grad(), plain.grad()), what);
}

// Parent and child go on with the hooks, and each has its own tensors and those from before the fork. The last
// tensor may be on its way to the file when the fork comes, and what is on its way may not be more than
// nothing.
void while_tensors_are_spilled() {
  auto hooks = overdrive::hooks::spill_to_disk({.min_bytes = 0, .max_waiting_bytes = 0});
  const auto train_under_hooks = [&](double factor) {
    const Tensor x = numbers(factor);
    chain(x, hooks).backward();
    check_gradient(x, "the gradient of a step under the hooks");
  };
  for (int round = 0; round < 3; ++round) {
    Tensor x = numbers(1), loss = chain(x, hooks);
    const auto finish = [&] {
      loss.backward();
      check_gradient(x, "the gradient of the step from before the fork");
    };
    fork_and_wait([&] {
      train_under_hooks(2);
      finish();
      train_under_hooks(3);
      loss = Tensor();
      hooks = nullptr;
    });
    train_under_hooks(4);
    finish();
  }
}

// A thread that only the parent has is inside the hook's unpack(), for a node that comes later.
void while_tensors_are_fetched() {
  std::promise<void> fetching, go_on;
  const auto first_thread = std::this_thread::get_id();
  std::atomic<bool> first{true};
  const auto hooks = overdrive::hooks::make_hooks(
      [](const Tensor& tensor, const overdrive::hooks::SaveInfo&) {
        return overdrive::hooks::Packed::of(tensor.clone());
      },
      [&](overdrive::hooks::Packed& packed, const overdrive::hooks::UnpackInfo&) {
        if (std::this_thread::get_id() != first_thread && first.exchange(false)) {
          fetching.set_value();
          go_on.get_future().wait();
        }
        return packed.tensors[0];
      });
  const Tensor x = numbers(1);
  const Tensor loss = chain(x, overdrive::hooks::schedulable(hooks, {.window_tensors = 0}));
  fork_inside(
      [&](const std::function<void()>& hook) {
        loss.register_hook([&](const Tensor&) {
          fetching.get_future().wait();
          hook();
        });
        loss.backward();
        check_gradient(x, "the gradient of a backward whose tensors were being fetched");
      },
      [&] { go_on.set_value(); });
}

// That thread is inside a region, which runs again before its turn; this one is inside the backward of the
// region after.
void while_a_region_runs_ahead() {
  std::promise<void> running, go_on;
  const auto first_thread = std::this_thread::get_id();
  std::atomic<bool> first{true};
  const auto earlier = [&](const Tensor& t) {
    if (std::this_thread::get_id() != first_thread && first.exchange(false)) {
      running.set_value();
      go_on.get_future().wait();
    }
    return t.sin().sin().sin();
  };
  const Tensor x = numbers(1);
  fork_inside(
      [&](const std::function<void()>& hook) {
        const auto later = [&](const Tensor& t) {
          const Tensor y = t.sin().sin().sin();
          if (!overdrive::is_recomputing()) return y;
          y.register_hook([&](const Tensor&) {
            running.get_future().wait();
            hook();
          });
          return y;
        };
        const overdrive::CheckpointOptions early{.form = overdrive::CheckpointForm::kEarly, .ahead = 1};
        overdrive::checkpointed(early, later, overdrive::checkpointed(early, earlier, x)).sum().backward();
        check_gradient(x, "the gradient of a backward with a region that was running ahead");
      },
      [&] { go_on.set_value(); });
}

// Makes the library take each lock that it has for the whole process.
void use_every_part() {
  const overdrive::ScopedInstall with_errors({.errors = overdrive::engine::Errors::kFull});
  overdrive::keep_memory(size_t{64} << 20);
  const auto memory = overdrive::memory_timeline([] { train(1); });
  for (const auto& hooks : {overdrive::hooks::spill_to_disk({.min_bytes = 0}),
                            overdrive::hooks::schedulable(overdrive::hooks::spill_to_disk({.min_bytes = 0}))}) {
    chain(numbers(1), hooks).backward();
  }
  Tensor buffer = torch::zeros({});
  const auto region = [&](const Tensor& t) {
    buffer.add_(1);
    return torch::dropout(t, 0.5, true).sin();
  };
  using overdrive::CheckpointForm;
  for (const CheckpointForm form : {CheckpointForm::kEarly, CheckpointForm::kOnDemand}) {
    overdrive::checkpointed({.form = form}, region, numbers(1)).sum().backward();
  }
  overdrive::jvp([](const Tensor& t) { return t.sin(); }, numbers(1).detach(), torch::ones({1024}));
}

// The thread lets go of its lock when the fork has begun, and long after a fork that does not wait is over.
std::promise<void>* fork_has_begun = nullptr;
void while_another_thread_holds_each_lock() {
  use_every_part();
  pthread_atfork(
      [] {
        if (fork_has_begun != nullptr) fork_has_begun->set_value();
      },
      nullptr, nullptr);
  const auto check_all_are_free = [] {
    for (auto* lock : overdrive::base::locks_held_at_fork()) {
      check(lock->try_hold(), lock->name());
      lock->let_go();
    }
    use_every_part();
    train(2);
  };
  std::set<std::string> seen;
  for (auto* lock : overdrive::base::locks_held_at_fork()) {
    seen.insert(lock->name());
    std::promise<void> held, begun;
    fork_has_begun = &begun;
    std::thread other([&] {
      while (!lock->try_hold()) std::this_thread::yield();
      held.set_value();
      begun.get_future().wait();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      lock->let_go();
    });
    held.get_future().wait();
    fork_and_wait(check_all_are_free);
    other.join();
  }
  fork_has_begun = nullptr;
  for (const char* name : {"switch", "loaded objects", "counters", "heap keeper", "watchers", "job threads",
                           "spilled tensors", "units to fetch", "random regions", "writes outside of a region",
                           "forward-mode levels", "LibTorch's dual level", "notes of errors", "forward places",
                           "in-place writes", "releases", "live bytes"}) {
    check(seen.contains(name), name);
  }
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
    {"while_tensors_are_spilled", while_tensors_are_spilled},
    {"while_tensors_are_fetched", while_tensors_are_fetched},
    {"while_a_region_runs_ahead", while_a_region_runs_ahead},
    {"while_another_thread_holds_each_lock", while_another_thread_holds_each_lock},
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
