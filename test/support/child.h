// What a forked child of the test finds out.
#pragma once

#include <sys/wait.h>
#include <torch/cuda.h>
#include <unistd.h>

#include <cstdio>
#include <exception>

namespace overdrive::test {

// Whether `check` holds in a forked child. The child ends with the check, also where that throws or takes a
// minute: the tests that follow are the parent's.
template <typename Check>
bool holds_in_a_child(const Check& check) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    try {
      _exit(check() ? 0 : 1);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "in the child: %s\n", error.what());
    } catch (...) {
    }
    _exit(2);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace overdrive::test

// For a child that runs a backward.
#define OVERDRIVE_NEEDS_CHILDREN_THAT_TRAIN()                                                             \
  if (torch::cuda::is_available())                                                                        \
  GTEST_SKIP() << "LibTorch refuses backwards in a child whose parent has run one where there is a CUDA " \
                  "device"
