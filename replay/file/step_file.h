// A captured step out of a file: overdrive::load_step(path). Replays without the function that it was captured
// from, without Python and without an engine. The caller owns the step; one thread at a time may call it. A
// file is data: what it says is checked before anything runs. docs/guide/step_files.md says how to write one,
// and docs/step_file.md what is in it.
#pragma once

#include "engine/base/export.h"
#include "replay/file/load_options.h"
#include "replay/file/save_options.h"

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace overdrive {

namespace replay {
struct LoadedStep;
}

class OVERDRIVE_API Step {  // A loaded step. Not for two threads at once.
 public:
  explicit Step(std::unique_ptr<replay::LoadedStep> loaded);
  ~Step();
  Step(Step&&) noexcept;
  Step& operator=(Step&&) noexcept;

  // The results of the first function. An error leaves everything as it was, unless it says otherwise.
  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& inputs);
  // The results of one of several functions.
  std::vector<at::Tensor> call(const std::string& function, const std::vector<at::Tensor>& inputs);
  // The names of the functions.
  std::vector<std::string> functions() const;
  // Inputs for each program of a function: those of the call that proves it, or zeros where there is none.
  std::vector<std::vector<at::Tensor>> recorded_inputs(const std::string& function) const;
  // How long a replay of each program took where the file was written, in seconds; 0 where that is not known.
  std::vector<double> recorded_seconds(const std::string& function) const;
  // What the function took eagerly there, for each program: CaptureOptions::eager_calls. Not known of files of
  // version 1.
  std::vector<EagerCost> recorded_eager_cost(const std::string& function) const;
  // How many operators a replay of each program calls.
  std::vector<size_t> operator_counts(const std::string& function) const;

  // Every tensor of the step by its name. They are the step's own: values that are copied into them are seen.
  std::vector<std::pair<std::string, at::Tensor>> named_tensors() const;
  // Those that required a gradient, in the order of the file.
  std::vector<at::Tensor> parameters() const;
  // Learning rates and other numbers of optimizers: "0.lr" is that of the first group.
  std::map<std::string, double> optimizer_numbers() const;
  // Another value of one of these.
  void set_optimizer_number(const std::string& name, double value);
  // The learning rate of every group.
  void set_learning_rate(double rate);
  // Sets the process's random generator as it was when the file was written.
  void restore_generator();

  // Tensors, step counts and random generators, as a dict that torch.load() reads.
  void save_state(const std::string& path) const;
  // From save_state(), from a dict of Python's torch.save(), or from a step file. Other sizes are an error.
  LoadedState load_state(const std::string& path);
  // Copies the values into the parameters and buffers of these names.
  void to_module_state(torch::nn::Module& module) const;

  // What is in the file, as text.
  std::string describe() const;

 private:
  std::unique_ptr<replay::LoadedStep> loaded_;
};

// Reads, checks and proves a file. The error names the file, and what is wrong with it.
OVERDRIVE_API Step load_step(const std::string& path, LoadOptions options = {});

}  // namespace overdrive
