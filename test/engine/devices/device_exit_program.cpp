// Ends a process in one of many ways while workers of devices are alive: device_exit_program HOW.
// device_exit_test.cpp runs each; the exit status is kStatus when nothing went wrong on the way out. A backward
// in an exit handler is not among them: the thread's queue is gone by then, on stock too.
#include "engine/engine.h"

#include "test/support/pch.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <thread>

namespace {

using torch::Tensor;

constexpr int kStatus = 7;

at::Device device(int index) { return {at::kPrivateUse1, static_cast<at::DeviceIndex>(index)}; }

void check(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "failed: %s\n", what);
  std::_Exit(3);
}

// {x on 0} --*3--> {y} --to 1--> loss, with `hook` on the worker of device 0.
void backward(void (*hook)() = nullptr) {
  const torch::AutoGradMode on(true);  // it is off inside a hook
  const Tensor x = torch::ones({2}).to(device(0)).detach().requires_grad_(true);
  const Tensor y = x * 3;
  if (hook != nullptr) y.register_hook([hook](const Tensor&) { hook(); });
  y.to(device(1)).sum().backward();
  check(torch::equal(x.grad().cpu(), torch::full({2}, 3.0)), "gradient");
}

// A worker that waits in a hook for ever, and a caller that waits for it, while this thread ends the process.
void exit_while_a_worker_is_busy() {
  static std::promise<void> inside;
  std::thread([] {
    backward([] {
      inside.set_value();
      std::promise<void>().get_future().wait();
    });
  }).detach();
  inside.get_future().wait();
  std::exit(kStatus);
}

struct Way {
  const char* name;
  void (*leave)();  // returning means that main returns
};

const Way kWays[] = {
    {"return_from_main", [] {}},
    {"return_after_uninstall", [] { check(overdrive::uninstall(), "uninstall"); }},
    {"exit_from_main", [] { std::exit(kStatus); }},
    {"exit_from_a_thread", [] { std::thread([] { backward(), std::exit(kStatus); }).join(); }},
    {"exit_inside_a_hook_on_a_worker", [] { backward([] { std::exit(kStatus); }); }},
    {"exit_inside_a_nested_backward_of_a_worker",
     [] { backward([] { backward([] { std::exit(kStatus); }); }); }},
    {"exit_while_a_worker_is_busy", exit_while_a_worker_is_busy},
    {"quick_exit", [] { std::quick_exit(kStatus); }},
    {"quick_exit_inside_a_hook_on_a_worker", [] { backward([] { std::quick_exit(kStatus); }); }},
    {"underscore_exit_inside_a_hook_on_a_worker", [] { backward([] { std::_Exit(kStatus); }); }},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc == 1) {
    for (const Way& way : kWays) std::printf("%s\n", way.name);
    return 0;
  }
  for (const Way& way : kWays) {
    if (std::strcmp(argv[1], way.name) != 0) continue;
    overdrive::install();
    backward();
    check(overdrive::stats().threads == 2, "two workers have started");
    way.leave();
    return kStatus;
  }
  return 2;
}
