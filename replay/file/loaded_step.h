// The content of a Step: tables of the file, tensors, programs. Owned by the Step; one thread at a time.
#pragma once

#include "replay/file/load_options.h"
#include "replay/file/loaded_program.h"

#include <atomic>
#include <functional>

namespace overdrive::replay {

struct LoadedStep {
  LoadedStep(StoredStep read, const LoadOptions& options);

  LoadedProgram& program_for(size_t function, const std::vector<at::Tensor>& inputs);
  std::vector<at::Tensor> call(size_t function, const std::vector<at::Tensor>& inputs);
  size_t function_named(const std::string& name) const;

  // Every number of an optimizer, with a way to set it: those that are tensors, and those that are not.
  struct Number {
    std::string name;
    double value;
    std::function<void(double)> set;
  };
  std::vector<Number> numbers();
  std::vector<std::pair<std::string, at::Tensor>> named() const;
  // Without those that a call makes anew, as gradients.
  std::vector<std::pair<std::string, at::Tensor>> lasting() const;
  // What save_state() writes; tensors that are no named ones as well.
  std::vector<std::pair<std::string, at::Tensor>> state() const;
  LoadedState take_state(const std::vector<std::pair<std::string, at::Tensor>>& given);
  void check_fixed() const;
  // Whether any program draws random numbers.
  bool uses_generators() const;

  StoredStep stored;
  LoadedTensors tensors;
  // By function.
  std::vector<std::vector<std::unique_ptr<LoadedProgram>>> programs;
  std::atomic<bool> is_busy{false};
};

std::string text_of(const LoadedStep& step);

}  // namespace overdrive::replay
