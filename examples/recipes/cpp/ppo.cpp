// C++: PPO on a pole that a cart balances
//
// Sixteen carts at once, a net with two heads, advantages by GAE, minibatches with clipped ratios and clipped
// gradients.
#include "examples/recipes/cpp/recipe.h"

#include <overdrive/replay/capture.h>
#include <overdrive/replay/clip_grad_norm.h>

#include <cmath>
#include <random>

namespace nn = torch::nn;

namespace {

constexpr int64_t kCarts = 16, kMoves = 32, kEpochs = 4, kMinibatch = 64;
constexpr double kDiscount = 0.99, kTrace = 0.95, kClip = 0.2, kMostNorm = 0.5;

// A pole on a cart that is pushed to the left or to the right. It falls, or 200 moves are over.
class Cart {
 public:
  explicit Cart(unsigned seed) : random_(seed) { begin(); }

  std::array<float, 4> state() const { return {place_, speed_, angle_, turn_}; }

  // Whether the pole has fallen, after which another one stands.
  bool push(bool right) {
    constexpr float kTime = 0.02F, kGravity = 9.8F, kPole = 0.1F, kAll = 1.1F, kHalf = 0.5F;
    const float sine = std::sin(angle_), cosine = std::cos(angle_);
    const float force = ((right ? 10.F : -10.F) + kPole * kHalf * turn_ * turn_ * sine) / kAll;
    const float turning =
        (kGravity * sine - cosine * force) / (kHalf * (4.F / 3 - kPole * cosine * cosine / kAll));
    const float moving = force - kPole * kHalf * turning * cosine / kAll;
    place_ += kTime * speed_;
    speed_ += kTime * moving;
    angle_ += kTime * turn_;
    turn_ += kTime * turning;
    const bool over = std::abs(place_) > 2.4F || std::abs(angle_) > 0.21F || ++moves_ == 200;
    if (over) begin();
    return over;
  }

 private:
  void begin() {
    std::uniform_real_distribution<float> small(-0.05F, 0.05F);
    for (float* number : {&place_, &speed_, &angle_, &turn_}) *number = small(random_);
    moves_ = 0;
  }

  std::mt19937 random_;
  float place_ = 0, speed_ = 0, angle_ = 0, turn_ = 0;
  int moves_ = 0;
};

struct ActorCritic : nn::Module {
  nn::Linear first{4, 64}, second{64, 64}, actor{64, 2}, critic{64, 1};

  ActorCritic() {
    register_module("first", first);
    register_module("second", second);
    register_module("actor", actor);
    register_module("critic", critic);
  }
  std::tuple<at::Tensor, at::Tensor> forward(at::Tensor x) {
    x = torch::tanh(second->forward(torch::tanh(first->forward(x))));
    return {torch::log_softmax(actor->forward(x), 1), critic->forward(x).squeeze(1)};
  }
};

struct Rollout {  // Of all carts, move by move.
  at::Tensor states, actions, log_probs, values, rewards, ends, last_values;
};

at::Tensor states_of(const std::vector<Cart>& carts) {
  auto states = torch::empty({kCarts, 4});
  for (int64_t i = 0; i < kCarts; ++i) {
    const auto state = carts[static_cast<size_t>(i)].state();
    std::copy(state.begin(), state.end(), states.mutable_data_ptr<float>() + 4 * i);
  }
  return states;
}

Rollout play(ActorCritic& net, std::vector<Cart>& carts) {
  const torch::NoGradGuard no_grad;
  std::vector<at::Tensor> states, actions, log_probs, values, ends;
  for (int64_t move = 0; move < kMoves; ++move) {
    states.push_back(states_of(carts));
    const auto [all, value] = net.forward(states.back());
    actions.push_back(all.exp().multinomial(1));
    log_probs.push_back(all.gather(1, actions.back()).squeeze(1));
    values.push_back(value);
    ends.push_back(torch::zeros({kCarts}));
    for (int64_t i = 0; i < kCarts; ++i) {
      const bool right = actions.back().const_data_ptr<int64_t>()[i] == 1;
      if (carts[static_cast<size_t>(i)].push(right)) ends.back()[i] = 1;
    }
  }
  const auto last = std::get<1>(net.forward(states_of(carts)));
  return {torch::stack(states),
          torch::stack(actions),
          torch::stack(log_probs),
          torch::stack(values),
          torch::ones({kMoves, kCarts}),
          torch::stack(ends),
          last};
}

at::Tensor advantages_of(const Rollout& rollout) {
  auto advantages = torch::zeros({kMoves, kCarts}), next = torch::zeros({kCarts}),
       following = rollout.last_values;
  for (int64_t move = kMoves - 1; move >= 0; --move) {
    const auto goes_on = 1 - rollout.ends[move];
    const auto surprise = rollout.rewards[move] + kDiscount * following * goes_on - rollout.values[move];
    next = surprise + kDiscount * kTrace * goes_on * next;
    advantages[move] = next;
    following = rollout.values[move];
  }
  return advantages;
}

void train(recipe::Run& run) {
  auto net = std::make_shared<ActorCritic>();
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(1e-3).eps(1e-5));
  std::vector<Cart> carts;
  for (unsigned seed = 0; seed < kCarts; ++seed) carts.emplace_back(seed);

  const auto update = [&](at::Tensor states, at::Tensor actions, at::Tensor old_log_probs,
                          at::Tensor advantages, at::Tensor returns) {
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8);
    const auto [all, values] = net->forward(states);
    const auto ratio = (all.gather(1, actions).squeeze(1) - old_log_probs).exp();
    const auto gain = torch::min(advantages * ratio, advantages * ratio.clamp(1 - kClip, 1 + kClip));
    const auto entropy = -(all.exp() * all).sum(1);
    auto loss = -gain.mean() + 0.5 * torch::mse_loss(values, returns) - 0.01 * entropy.mean();
    optimizer.zero_grad();
    loss.backward();
    if (run.captured)
      overdrive::clip_grad_norm_(net->parameters(), kMostNorm);  // overdrive
    else
      torch::nn::utils::clip_grad_norm_(net->parameters(), kMostNorm);
    optimizer.step();
    return loss;
  };
  auto replay = overdrive::capture(update, {.optimizer = &optimizer, .modules = {net}});  // overdrive

  for (int64_t round = 0; round < run.many(450); ++round) {
    const Rollout rollout = play(*net, carts);
    const auto advantages = advantages_of(rollout), returns = advantages + rollout.values;
    const auto all = {rollout.states.flatten(0, 1), rollout.actions.flatten(0, 1), rollout.log_probs.flatten(),
                      advantages.flatten(), returns.flatten()};
    for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
      for (const auto& chosen : torch::randperm(kMoves * kCarts).split(kMinibatch)) {
        std::vector<at::Tensor> part;
        for (const auto& tensor : all) part.push_back(tensor.index_select(0, chosen));
        run.timed([&] {
          return run.captured ? replay(part[0], part[1], part[2], part[3], part[4])  // overdrive
                              : update(part[0], part[1], part[2], part[3], part[4]);
        });
      }
    }
  }
  run.done(net->parameters(), replay.stats().replayed);
}

}  // namespace

int main(int argc, char** argv) { return recipe::main_of(argc, argv, train); }
