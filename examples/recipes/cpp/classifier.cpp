// C++: a classifier of small images, with torch::data's loaders
//
// In the manner of LibTorch's first tutorial: a data set, a loader, a net with dropout, SGD, a log line now and
// then.
#include "examples/recipes/cpp/recipe.h"

#include <overdrive/replay/capture.h>

namespace nn = torch::nn;

namespace {

// Bright rows and columns in noise; the place of the bar is the class.
class Bars : public torch::data::datasets::Dataset<Bars> {
 public:
  explicit Bars(int64_t count)
      : images_(0.5 * torch::randn({count, 1, 8, 8})), labels_(torch::randint(16, {count})) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t label = labels_[i].item<int64_t>();
      images_[i][0].select(label / 8, label % 8) += 1;
    }
  }
  torch::data::Example<> get(size_t index) override {
    return {images_[static_cast<int64_t>(index)], labels_[static_cast<int64_t>(index)]};
  }
  std::optional<size_t> size() const override { return static_cast<size_t>(images_.size(0)); }

 private:
  torch::Tensor images_, labels_;
};

struct Net : nn::Module {
  nn::Conv2d conv{nn::Conv2dOptions(1, 8, 3)};
  nn::Dropout drop{0.25};
  nn::Linear hidden{8 * 3 * 3, 32}, out{32, 16};

  Net() {
    register_module("conv", conv);
    register_module("drop", drop);
    register_module("hidden", hidden);
    register_module("out", out);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(torch::max_pool2d(conv->forward(x), 2)).flatten(1);
    return torch::log_softmax(out->forward(drop->forward(torch::relu(hidden->forward(x)))), 1);
  }
};

void train(recipe::Run& run) {
  auto net = std::make_shared<Net>();
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.5));
  auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      Bars(2048).map(torch::data::transforms::Normalize<>(0.06, 0.6)).map(torch::data::transforms::Stack<>()),
      32);

  const auto step = [&](at::Tensor images, at::Tensor labels) {  // overdrive
    optimizer.zero_grad();
    auto loss = torch::nll_loss(net->forward(images), labels);
    loss.backward();
    optimizer.step();
    return loss;                                                                        // overdrive
  };                                                                                    // overdrive
  auto replay = overdrive::capture(step, {.optimizer = &optimizer, .modules = {net}});  // overdrive

  for (int64_t epoch = 0; epoch < run.many(300); ++epoch) {
    float shown = 0;
    int64_t number = 0;
    for (auto& batch : *loader) {
      auto loss = run.timed([&] {
        return run.captured ? replay(batch.data, batch.target) : step(batch.data, batch.target);  // overdrive
      });
      if (number++ % 20 == 0) shown = loss.item<float>();
    }
    TORCH_CHECK(std::isfinite(shown), "the loss of epoch ", epoch, " is ", shown);
  }
  run.done(net->parameters(), replay.stats().replayed);
}

}  // namespace

int main(int argc, char** argv) { return recipe::main_of(argc, argv, train); }
