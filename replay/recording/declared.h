// Values of the program that a recording cannot know: modes of modules, watched numbers, numbers of an
// optimizer. What was declared is read in every call; what should have been is a refusal. Owned by a
// CapturedFunction or one of its recordings; one thread at a time.
#pragma once

#include "replay/capture_options.h"
#include "replay/optimizers/numbers_of_optimizers.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace overdrive::replay {

// All that .optimizer and .optimizers name.
std::vector<torch::optim::Optimizer*> optimizers_of(const CaptureOptions& options);

struct WatchedValue {
  const void* address;
  std::string bytes;

  WatchedValue(const void* value, size_t size) : address(value), bytes(static_cast<const char*>(value), size) {}
  // Of eight bytes.
  int64_t as_number() const {
    int64_t number = 0;
    std::memcpy(&number, bytes.data(), std::min(bytes.size(), sizeof number));
    return number;
  }
  bool holds() const { return std::memcmp(address, bytes.data(), bytes.size()) == 0; }
};

// What one of LibTorch's modules was made with, as the p of dropout; nothing of another's. Each value is in its
// place while those before it hold. module_options.cpp
std::vector<WatchedValue> options_of(const torch::nn::Module& module);

// The modes and options of modules and of all their children, as they were when it was made, and which children
// they are.
class ModuleModes {
 public:
  explicit ModuleModes(const std::vector<std::shared_ptr<torch::nn::Module>>& roots);
  bool hold() const;
  // Of two that were made of the same roots: whether modes and options were the same.
  bool same_as(const ModuleModes& other) const;

 private:
  struct Mode {
    std::shared_ptr<torch::nn::Module> module;
    bool training;
    std::vector<std::shared_ptr<torch::nn::Module>> children;
    std::vector<WatchedValue> options;
  };
  std::vector<Mode> modes_;
};

// A value that the program uses and the options do not declare, as a sentence; empty when none is missing.
Refusal undeclared(const ReplayRun& run, const CaptureOptions& options, const NumbersOfOptimizers* numbers);

}  // namespace overdrive::replay
