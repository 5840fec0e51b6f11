// The interface of every example model: built from a seed, trained step by step, judged. Owned
// by a command; one thread calls it. Leaves engines, timing and files to its caller.
#pragma once

#include "examples/trainers/meter.h"
#include "replay/clip_grad_norm.h"

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace overdrive {
class CapturedStep;
}

namespace overdrive::trainers {

// One of several processes that train together; `port` is their store's.
struct World {
  int rank = 0;
  int size = 1;
  uint16_t port = 0;
};

// How a model that is a chain of layers holds less in memory: recomputed in as many even segments as the root
// of its layers, or by Revolve with so many snapshots.
struct Checkpointing {
  int64_t snapshots = 0;  // 0: segments
};

// What a trainer is built from.
struct Setup {
  uint64_t seed = 1;
  torch::Device device = torch::kCPU;
  torch::ScalarType dtype = torch::kFloat32;  // of parameters and of what is not a whole number
  std::optional<World> world = {};
  std::optional<Checkpointing> checkpointing = {};
};

// A module, so that its parameters have names and can be saved. Two trainers of one Setup do the same bit for
// bit: after construction random numbers come from generator() only. Built on the CPU in float;
// make_trainer() moves the parameters to where they belong.
class Trainer : public torch::nn::Module {
 public:
  explicit Trainer(const Setup& setup);
  ~Trainer() override;

  // One training step; every backward in it goes through `meter`. Returns the loss.
  virtual double step(Meter& meter) = 0;
  // How good the model is now, in the unit of TrainerInfo::quality.
  virtual double evaluate() = 0;
  // Whether to stop now, asked after every step; `mine` is what this process wants. Processes that train
  // together agree.
  virtual bool all_stop(bool mine) { return mine; }
  // What it wants to show at the end of a training: a sample of text, for example.
  virtual std::string epilogue() { return ""; }

  // Replays what add_learning(), add_part() and add_function() were given, from the next step on. The bits are
  // the same.
  void capture();
  // What came of it.
  struct Captured {
    uint64_t calls = 0;
    uint64_t replayed = 0;
    std::string refusal = {};  // why a part is not replayed, if there is a reason that stays
  };
  Captured captured() const;

  const Setup& setup() const { return setup_; }

  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 protected:
  // Optimizers added here are saved and loaded with the model.
  torch::optim::Optimizer& add_optimizer(std::unique_ptr<torch::optim::Optimizer> optimizer);
  // A part of a step that is a function of tensors: from the optimizer's zero_grad() to its step(). Returns the
  // loss.
  using Learning = std::function<torch::Tensor(const std::vector<torch::Tensor>& batch, Meter& meter)>;
  // Returns its number for learn().
  size_t add_learning(torch::optim::Optimizer& optimizer, Learning learning);
  // Calls it, or replays it after capture().
  torch::Tensor learn(size_t number, const std::vector<torch::Tensor>& batch, Meter& meter);
  using Tensors = std::vector<torch::Tensor>;
  using Function = std::function<Tensors(const Tensors&)>;
  // A part of the model, whose results have a graph, or a function that needs none. Each returns its number for
  // call().
  size_t add_part(Function function);
  size_t add_function(Function function);
  // Calls it, or replays it after capture(). One thread at a time for each number.
  Tensors call(size_t number, const Tensors& inputs);
  // What any LibTorch program does in a step: gradients from zero, forward, backward, and the optimizer's step
  // along gradients whose norm is at most `clip`. Returns the loss. The meter is a stopwatch around the forward
  // and around loss.backward(), and nothing else.
  template <typename Loss>
  torch::Tensor minimise(Meter& meter, torch::optim::Optimizer& optimizer, Loss&& loss_of,
                         std::optional<double> clip = {}) {
    optimizer.zero_grad();
    torch::Tensor loss = meter.forward(loss_of);
    meter.backward(loss);
    if (clip) clip_grad_norm_(parameters(), *clip);
    optimizer.step();
    return loss;
  }
  // On the CPU, wherever the model is: every device then sees the same numbers.
  at::Generator& generator() { return generator_; }
  // The tensor on this trainer's device, and in its dtype unless it holds whole numbers.
  torch::Tensor place(const torch::Tensor& tensor) const;
  // For tensors made there.
  torch::TensorOptions options() const { return torch::dtype(setup_.dtype).device(setup_.device); }

 private:
  const Setup setup_;
  at::Generator generator_;
  std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers_;
  struct Part;
  std::vector<std::unique_ptr<Part>> parts_;
  Meter* meter_ = nullptr;  // of the step that is under way
};

struct TrainerInfo {
  std::string name;        // "digits_cnn"
  std::string group = {};  // "digits": what the command line may also say
  std::string what;        // the model, in a line
  std::string shows;       // what to look for
  std::string quality;     // "test accuracy"
  bool more_is_better = true;
  double good = 0;  // the quality that default_steps steps reach
  int64_t default_steps = 0;
  std::function<std::unique_ptr<Trainer>(const Setup& setup)> make;
  bool distributed = false;     // knows what to do with Setup::world
  bool checkpointable = false;  // and with Setup::checkpointing
  // Why its steps cannot be captured; empty: they can.
  std::string not_captured = {};
};

// A trainer whose parameters are where `setup` wants them.
std::unique_ptr<Trainer> make_trainer(const TrainerInfo& info, const Setup& setup);

// All of them, in the order in which a reader should meet them.
const std::vector<TrainerInfo>& trainers();

// The trainers that a name or a group stands for; empty when there are none.
std::vector<const TrainerInfo*> find_trainers(const std::string& name);

// One for each file of this folder.
TrainerInfo digits_mlp();
TrainerInfo digits_cnn();
TrainerInfo lstm();
TrainerInfo rl_many_small();
TrainerInfo deq();
TrainerInfo wgan_gp();
TrainerInfo newton_cg();
TrainerInfo pinn();
TrainerInfo transformer();
TrainerInfo pipeline();
// Nothing where LibTorch has no c10d with Gloo.
std::optional<TrainerInfo> ddp();

// What one input of a TorchScript module looks like: its values are drawn anew for every step.
struct InputShape {
  std::vector<int64_t> sizes;
  int64_t below = 0;  // above 0: whole numbers from 0 to below - 1; else normally distributed numbers
};

// "8x3x32x32" or, for whole numbers below 65, "16x128:65". Throws c10::Error for anything else.
InputShape parse_input_shape(const std::string& text);

// Your own model: a TorchScript module from a file as a trainer. Throws c10::Error when the file is no
// TorchScript module or has no parameters to train.
TrainerInfo torchscript(const std::string& path, const std::vector<InputShape>& inputs);

}  // namespace overdrive::trainers
