// C++: a GAN whose two nets have an optimizer each
//
// In the manner of LibTorch's second tutorial: one loop that trains the discriminator on real and made points,
// then the generator.
#include "examples/recipes/cpp/recipe.h"

#include <overdrive/replay/capture.h>

namespace nn = torch::nn;

namespace {

constexpr int64_t kBatch = 64, kNoise = 8;

nn::Sequential make_net(int64_t in, int64_t out) {
  return nn::Sequential(nn::Linear(in, 64), nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)),
                        nn::Linear(64, 64), nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)),
                        nn::Linear(64, out));
}

// Points on a ring.
at::Tensor real_points() {
  const auto angle = 6.2832 * torch::rand({kBatch, 1});
  return torch::cat({angle.cos(), angle.sin()}, 1) + 0.05 * torch::randn({kBatch, 2});
}

void train(recipe::Run& run) {
  auto generator = make_net(kNoise, 2), discriminator = make_net(2, 1);
  const auto adam = torch::optim::AdamOptions(2e-4).betas({0.5, 0.999});
  torch::optim::Adam for_generator(generator->parameters(), adam),
      for_discriminator(discriminator->parameters(), adam);

  const auto step = [&](at::Tensor real) {  // overdrive
    for_discriminator.zero_grad();
    auto real_labels = torch::empty({kBatch, 1}).uniform_(0.8, 1.0);
    auto real_loss = torch::binary_cross_entropy_with_logits(discriminator->forward(real), real_labels);
    real_loss.backward();
    auto made = generator->forward(torch::randn({kBatch, kNoise}));
    auto made_labels = torch::zeros({kBatch, 1});
    auto made_loss =
        torch::binary_cross_entropy_with_logits(discriminator->forward(made.detach()), made_labels);
    made_loss.backward();
    for_discriminator.step();

    for_generator.zero_grad();
    auto loss = torch::binary_cross_entropy_with_logits(discriminator->forward(made), torch::ones({kBatch, 1}));
    loss.backward();
    for_generator.step();
    return std::tuple(real_loss + made_loss, loss);                                              // overdrive
  };                                                                                             // overdrive
  auto replay = overdrive::capture(step, {.optimizers = {&for_discriminator, &for_generator}});  // overdrive

  for (int64_t number = 0; number < run.many(10000); ++number) {
    auto real = real_points();
    auto losses = run.timed([&] { return run.captured ? replay(real) : step(real); });  // overdrive
    if (number % 500 == 0) TORCH_CHECK(std::isfinite(std::get<0>(losses).item<float>()), "step ", number);
  }
  auto trained = generator->parameters();
  for (const auto& parameter : discriminator->parameters()) trained.push_back(parameter);
  run.done(trained, replay.stats().replayed);
}

}  // namespace

int main(int argc, char** argv) { return recipe::main_of(argc, argv, train); }
