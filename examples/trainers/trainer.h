// The interface of every example model: built from a seed, trained step by step, judged. Owned
// by a command; one thread calls it. Leaves engines, timing and files to its caller.
#pragma once

#include "examples/trainers/meter.h"

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace overdrive::trainers {

// A module, so that its parameters have names and can be saved. Two trainers of one seed do the same bit for
// bit: after construction random numbers come from generator() only.
class Trainer : public torch::nn::Module {
 public:
  explicit Trainer(uint64_t seed);
  ~Trainer() override;

  // One training step; every backward in it goes through `meter`. Returns the loss.
  virtual double step(Meter& meter) = 0;
  // How good the model is now, in the unit of TrainerInfo::quality.
  virtual double evaluate() = 0;
  // What it wants to show at the end of a training: a sample of text, for example.
  virtual std::string epilogue() { return ""; }

  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 protected:
  // Optimizers added here are saved and loaded with the model.
  torch::optim::Optimizer& add_optimizer(std::unique_ptr<torch::optim::Optimizer> optimizer);
  at::Generator& generator() { return generator_; }

 private:
  at::Generator generator_;
  std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers_;
};

struct TrainerInfo {
  std::string name;     // "digits_cnn"
  std::string group;    // "digits": what the command line may also say; may equal the name
  std::string what;     // the model, in a line
  std::string shows;    // what to look for
  std::string quality;  // "test accuracy"
  bool more_is_better = true;
  double good = 0;  // the quality that default_steps steps reach
  int64_t default_steps = 0;
  std::function<std::unique_ptr<Trainer>(uint64_t seed)> make;
};

// All of them, in the order in which a reader should meet them.
const std::vector<TrainerInfo>& trainers();

// The trainers that a name or a group stands for; empty when there are none.
std::vector<const TrainerInfo*> find_trainers(const std::string& name);

}  // namespace overdrive::trainers
