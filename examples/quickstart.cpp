#include <torch/torch.h>

#include <overdrive/engine/engine.h>

#include <iostream>

int main() {
  overdrive::install();  // every later backward runs on Overdrive

  torch::nn::Linear model(8, 1);
  torch::optim::SGD optimizer(model->parameters(), /*lr=*/0.1);
  for (int step = 0; step < 10; ++step) {
    optimizer.zero_grad();
    auto loss = (model(torch::ones({4, 8})) - 1).square().mean();
    loss.backward();
    optimizer.step();
    std::cout << "step " << step << ": loss " << loss.item<float>() << '\n';
  }

  overdrive::uninstall();  // the engine from before is the default again
}
