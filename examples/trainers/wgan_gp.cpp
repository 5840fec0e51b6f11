// WGAN-GP: double backward. A generator of 8x8 digits against a critic whose gradient with respect to its input
// is held near length one; that penalty is itself differentiated.
//
// What to look for: the critic's step calls torch::autograd::grad() with create_graph, so the first backward
// builds a graph, and the second runs through it.
#include "examples/data/digits.h"
#include "examples/trainers/trainer.h"

namespace overdrive::trainers {

namespace {

namespace nn = torch::nn;

constexpr int64_t kNoise = 16;
constexpr int kCriticStepsPerStep = 2;
constexpr double kPenalty = 10;

nn::Sequential generator_net() {
  return nn::Sequential(nn::Linear(kNoise, 64), nn::ReLU(), nn::Linear(64, 64), nn::ReLU(), nn::Linear(64, 64),
                        nn::Sigmoid());
}

nn::Sequential critic_net() {
  // Smooth activations: the penalty's gradient needs a second derivative.
  return nn::Sequential(nn::Linear(64, 64), nn::SiLU(), nn::Linear(64, 64), nn::SiLU(), nn::Linear(64, 1));
}

class WganGp final : public Trainer {
 public:
  explicit WganGp(const Setup& setup)
      : Trainer(setup),
        data_(data::load_digits()),
        maker_(register_module("generator", generator_net())),
        critic_(register_module("critic", critic_net())) {
    auto adam = [](nn::Sequential& net) {
      return std::make_unique<torch::optim::Adam>(net->parameters(),
                                                  torch::optim::AdamOptions(5e-4).betas({0.5, 0.9}));
    };
    auto& of_maker = add_optimizer(adam(maker_));
    auto& of_critic = add_optimizer(adam(critic_));
    maker_step_ = add_learning(of_maker, [this, &of_maker](const auto& batch, Meter& meter) {
      return minimise(meter, of_maker, [&] { return -critic_->forward(maker_->forward(batch[0])).mean(); });
    });
    critic_step_ = add_learning(of_critic, [this, &of_critic](const auto& batch, Meter& meter) {
      const auto &real = batch[0], fake = maker_->forward(batch[1]).detach();
      of_critic.zero_grad();
      const auto plain =
          meter.forward([&] { return critic_->forward(fake).mean() - critic_->forward(real).mean(); });
      const auto loss = plain + kPenalty * gradient_penalty(batch[2], real, fake, meter);
      meter.backward(loss);
      of_critic.step();
      return loss;
    });
  }

  double step(Meter& meter) override {
    double critic_loss = 0;
    for (int i = 0; i < kCriticStepsPerStep; ++i) critic_loss = train_critic(meter);
    learn(maker_step_, {noise(kBatch)}, meter);
    return critic_loss;
  }

  // The energy distance between made and real test digits: zero only when they are spread alike.
  double evaluate() override {
    torch::NoGradGuard no_grad;
    const auto real = place(data_.test.images).flatten(1);
    const auto made = make(real.size(0));
    auto distance = [](const torch::Tensor& a, const torch::Tensor& b) {
      return torch::cdist(a.to(torch::kFloat32), b.to(torch::kFloat32)).mean();
    };
    const auto apart = distance(made, real), among_made = distance(made, made),
               among_real = distance(real, real);
    return (2 * apart - among_made - among_real).item<double>();
  }

 private:
  static constexpr int64_t kBatch = 32;

  torch::Tensor noise(int64_t count) { return place(torch::randn({count, kNoise}, generator())); }
  torch::Tensor make(int64_t count) { return maker_->forward(noise(count)); }

  torch::Tensor real_digits() {
    const auto pick = torch::randint(data_.train.labels.size(0), {kBatch}, generator(), torch::kInt64);
    return place(data_.train.images.index_select(0, pick)).flatten(1);
  }

  double train_critic(Meter& meter) {
    const auto real = real_digits(), from = noise(kBatch), mix = place(torch::rand({kBatch, 1}, generator()));
    return learn(critic_step_, {real, from, mix}, meter).item<double>();
  }

  torch::Tensor gradient_penalty(const torch::Tensor& mix, const torch::Tensor& real, const torch::Tensor& fake,
                                 Meter& meter) {
    const auto between = (mix * real + (1 - mix) * fake).requires_grad_();
    const auto score = meter.forward([&] { return critic_->forward(between).sum(); });
    const auto gradient = meter.measured(score, [&] {
      return torch::autograd::grad({score}, {between}, /*grad_outputs=*/{}, /*retain_graph=*/true,
                                   /*create_graph=*/true)[0];
    });
    return (gradient.norm(2, 1) - 1).pow(2).mean();
  }

  const data::Digits data_;
  nn::Sequential maker_, critic_;
  size_t maker_step_, critic_step_;
};

}  // namespace

TrainerInfo wgan_gp() {
  return {.name = "wgan_gp",
          .what = "WGAN with gradient penalty on digits",
          .shows = "double backward through the engine",
          .quality = "energy distance to test digits",
          .more_is_better = false,
          .good = 0.5,
          .default_steps = 1500,
          .make = [](const Setup& setup) { return std::make_unique<WganGp>(setup); },
};
}

}  // namespace overdrive::trainers
