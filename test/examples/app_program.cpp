// A program as somebody else has it, for the tests of `compare --app`: trains a small net, prints losses, and
// can misbehave on purpose. Knows nothing of Overdrive.
#include <torch/torch.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "plain";
  if (mode == "no_backward") return 0;
  if (mode == "sleeps") {
    std::ofstream("asleep").close();
    std::this_thread::sleep_for(std::chrono::minutes(10));
  }
  at::set_num_threads(1);
  torch::manual_seed(1);
  torch::nn::Linear model(4, 1);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    const auto loss = (model(torch::ones({2, 4})) - 1).square().mean();
    loss.backward();
    optimizer.step();
    if (mode == "silent") continue;
    std::cout << "step " << step << ": loss " << loss.item<double>() << '\n';
  }
  // What only a program under the preload library can see.
  const char* const libraries = std::getenv("LD_PRELOAD");
  const bool preloaded = libraries != nullptr && std::string(libraries).find("autoload") != std::string::npos;
  if (mode == "differs" && preloaded) std::cout << "preloaded\n";
  if (mode == "status" && preloaded) return 3;
  if (mode == "address") std::cout << "at " << static_cast<void*>(model.get()) << '\n';
}
