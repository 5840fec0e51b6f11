// `overdrive bench faults MODEL`: page faults of a training step on one engine, in this process. `bench memory`
// and `compare` run it in a process of its own for each model and engine, because a heap remembers all that was
// in it.
#include "bench/engine_switch.h"
#include "bench/process_usage.h"
#include "engine/stats.h"
#include "examples/cli/cli.h"
#include "examples/trainers/trainer.h"

#include <ATen/Parallel.h>

#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>

namespace overdrive::cli {

namespace {

using at::Tensor;
using Step = std::function<void()>;

// Drops the gradients after each step, as a program does that calls zero_grad().
template <typename Net, typename Loss>
Step training_step(Net net, Loss loss) {
  return [=]() mutable {
    loss(net).backward();
    const torch::NoGradGuard no_grad;
    for (const Tensor& parameter : net->parameters()) {
      parameter.sub_(parameter.grad(), 0.01);
      parameter.mutable_grad().reset();
    }
  };
}

Step mlp() {
  torch::nn::Sequential net;
  for (int i = 0; i < 4; ++i) {
    net->push_back(torch::nn::Linear(512, 512));
    net->push_back(torch::nn::Tanh());
  }
  const Tensor x = torch::randn({64, 512}), y = torch::randn({64, 512});
  return training_step(net, [=](auto& n) { return torch::mse_loss(n->forward(x), y); });
}

Step bidirectional_lstm() {
  const torch::nn::LSTM net(torch::nn::LSTMOptions(28, 128).num_layers(2).bidirectional(true));
  const Tensor x = torch::randn({28, 100, 28});
  return training_step(net, [=](torch::nn::LSTM n) { return std::get<0>(n->forward(x)).pow(2).mean(); });
}

Step conv_net() {
  using namespace torch::nn;
  const Sequential net(Conv2d(Conv2dOptions(3, 32, 3).padding(1)), ReLU(),
                       Conv2d(Conv2dOptions(32, 32, 3).padding(1)), ReLU(), MaxPool2d(2),
                       Conv2d(Conv2dOptions(32, 64, 3).padding(1)), ReLU(), AdaptiveAvgPool2d(1), Flatten(),
                       Linear(64, 10));
  const Tensor x = torch::randn({32, 3, 32, 32});
  return training_step(net, [=](Sequential n) { return n->forward(x).pow(2).mean(); });
}

Step gan() {
  using namespace torch::nn;
  Sequential faker(Linear(64, 256), ReLU(), Linear(256, 256), ReLU(), Linear(256, 784), Tanh());
  Sequential judge(Linear(784, 256), LeakyReLU(), Linear(256, 256), LeakyReLU(), Linear(256, 1));
  const Tensor real = torch::rand({100, 784}), noise = torch::randn({100, 64});
  const Step of_judge = training_step(judge, [=](Sequential n) mutable {
    const Tensor fake = faker->forward(noise).detach();
    return torch::softplus(n->forward(fake)).mean() + torch::softplus(-n->forward(real)).mean();
  });
  const Step of_faker = training_step(
      faker, [=](Sequential n) mutable { return torch::softplus(-judge->forward(n->forward(noise))).mean(); });
  return [=] {
    of_judge();
    of_faker();
  };
}

// Empty for a name that is none.
Step step_of(const std::string& model) {
  torch::manual_seed(1);
  if (model == "mlp") return mlp();
  if (model == "bidirectional_lstm") return bidirectional_lstm();
  if (model == "conv_net") return conv_net();
  if (model == "gan") return gan();
  for (const trainers::TrainerInfo& info : trainers::trainers()) {
    if (info.name != model) continue;
    const std::shared_ptr<trainers::Trainer> trainer = make_trainer(info, {});
    return [trainer, meter = std::make_shared<trainers::Meter>()] { trainer->step(*meter); };
  }
  return {};
}

struct FaultsArguments {
  std::string model, engine = "overdrive";
  int64_t steps = 20;
};

constexpr const char* kTunedStock = "tuned_stock";

// Warms up, as many steps as are counted, on Overdrive for `tuned_stock`: what Overdrive has set of glibc
// stays.
int bench_faults(const FaultsArguments& arguments) {
  at::set_num_threads(1);
  const Step step = step_of(arguments.model);
  if (!step) throw UsageError("there is no model \"" + arguments.model + "\".");
  const bool tuned = arguments.engine == kTunedStock;
  const auto counted = tuned ? bench::EngineKind::kStock : bench::parse_engine(arguments.engine);
  {
    const bench::UseEngine warming(tuned ? bench::EngineKind::kOverdrive : counted);
    for (int64_t i = 0; i < arguments.steps; ++i) step();
  }
  const bench::UseEngine counting(counted);
  step();
  const int64_t before = bench::process_usage().faults;
  const std::clock_t start = std::clock();
  for (int64_t i = 0; i < arguments.steps; ++i) step();
  const auto steps = static_cast<double>(arguments.steps);
  const double milliseconds = 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC / steps;
  const double faults = static_cast<double>(bench::process_usage().faults - before) / steps;
  std::printf("{\"faults\": %.1f, \"milliseconds\": %.4f, \"keep_memory_bytes\": %llu}\n", faults, milliseconds,
              static_cast<unsigned long long>(engine::stats().keep_memory_bytes));
  return kFine;
}

}  // namespace

std::vector<std::string> models_of_bench_faults() {
  std::vector<std::string> models{"mlp", "bidirectional_lstm", "gan", "conv_net"};
  for (const trainers::TrainerInfo& info : trainers::trainers()) {
    if (!info.distributed) models.push_back(info.name);  // those start processes of their own
  }
  return models;
}

void add_bench_faults(Program& program, CLI::App& parent) {
  auto arguments = std::make_shared<FaultsArguments>();
  CLI::App* command = program.add(parent, "faults", "Count the page faults of a training step on one engine.",
                                  "overdrive bench faults mlp --engine stock",
                                  [arguments] { return bench_faults(*arguments); });
  command->add_option("MODEL", arguments->model, "mlp, bidirectional_lstm, gan, conv_net or a trainer.")
      ->required();
  command
      ->add_option(
          "--engine", arguments->engine,
          "Whose backwards run: stock, overdrive, or tuned_stock, stock with Overdrive's memory settings.")
      ->capture_default_str();
  option(*command, "--steps", arguments->steps, "Steps to count, and as many before to warm up.", above_zero());
}

}  // namespace overdrive::cli
