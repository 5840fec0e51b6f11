// Many small backwards: an actor-critic whose nets are tiny and which learns after every single move, on
// several actor threads at once.
//
// What to look for: a backward here has a dozen nodes, so what a backward costs before its first node and after
// its last one is most of it; and backwards of different threads run at the same time. The result does not
// depend on how the threads interleave: each actor has its own copy of the net, and gradients are summed in the
// order of the actors.
#include "examples/trainers/registry.h"

#include <barrier>
#include <exception>
#include <thread>

namespace overdrive::trainers {

namespace {

namespace nn = torch::nn;

constexpr int kActors = 2;
constexpr int kMovesPerStep = 12;
constexpr double kDiscount = 0.95;

// A ball falls down a board; whoever stands below it at the end has caught it.
class CatchGame {
 public:
  static constexpr int64_t kColumns = 7;
  static constexpr int64_t kRows = 6;
  static constexpr int64_t kActions = 3;                 // left, stay, right
  static constexpr int64_t kOffsets = 2 * kColumns - 1;  // where the ball is, seen from the paddle
  static constexpr int64_t kInputs = kOffsets + kRows;

  void restart(at::Generator& random) {
    ball_ = torch::randint(kColumns, {1}, random, torch::kInt64).item<int64_t>();
    paddle_ = torch::randint(kColumns, {1}, random, torch::kInt64).item<int64_t>();
    row_ = 0;
  }
  bool over() const { return row_ == kRows - 1; }

  torch::Tensor look() const {
    auto seen = torch::zeros({1, kInputs});
    float* cells = seen.data_ptr<float>();
    cells[kColumns - 1 + ball_ - paddle_] = cells[kOffsets + row_] = 1;
    return seen;
  }

  // Moves, lets the ball fall one row and gives the reward.
  double play(int64_t action) {
    paddle_ = std::clamp<int64_t>(paddle_ + action - 1, 0, kColumns - 1);
    ++row_;
    if (!over()) return 0;
    return paddle_ == ball_ ? 1 : -1;
  }

 private:
  int64_t ball_ = 0, paddle_ = 0, row_ = 0;
};

class PolicyImpl : public nn::Module {
 public:
  PolicyImpl()
      : body_(register_module("body", nn::Linear(CatchGame::kInputs, 32))),
        actions_(register_module("actions", nn::Linear(32, CatchGame::kActions))),
        value_(register_module("value", nn::Linear(32, 1))) {}

  std::pair<torch::Tensor, torch::Tensor> forward(const torch::Tensor& seen) {
    const auto hidden = torch::tanh(body_->forward(seen));
    return {torch::log_softmax(actions_->forward(hidden), 1), value_->forward(hidden)};
  }

 private:
  nn::Linear body_, actions_, value_;
};
TORCH_MODULE(Policy);

// One player with a net, a game and a source of chance of its own. Used by one thread at a time.
class Actor {
 public:
  explicit Actor(uint64_t seed) : random_(at::make_generator<at::CPUGeneratorImpl>(seed)) {
    game_.restart(random_);
  }

  // Plays kMovesPerStep moves with the weights of `master` and learns from each at once.
  void play(const Policy& master, Meter& meter) {
    copy_weights(master);
    loss_ = 0;
    for (int i = 0; i < kMovesPerStep; ++i) loss_ += learn_from_one_move(meter);
  }

  Policy& net() { return net_; }
  double loss() const { return loss_; }
  at::Generator& random() { return random_; }

 private:
  void copy_weights(const Policy& master) {
    torch::NoGradGuard no_grad;
    const auto from = master->parameters();
    auto to = net_->parameters();
    for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
    net_->zero_grad();
  }

  double learn_from_one_move(Meter& meter) {
    const auto [log_chances, value] = net_->forward(game_.look());
    const auto action = torch::multinomial(log_chances.detach().exp(), 1, true, random_).item<int64_t>();
    double worth = game_.play(action);  // the reward, and what the next state promises
    if (game_.over()) {
      game_.restart(random_);
    } else {
      torch::NoGradGuard no_grad;
      worth += kDiscount * net_->forward(game_.look()).second.item<double>();
    }
    const auto surprise = worth - value;
    const auto entropy = -(log_chances.exp() * log_chances).sum();
    const auto loss =
        surprise.pow(2).sum() - (surprise.detach() * log_chances.select(1, action)).sum() - 0.02 * entropy;
    meter.backward(loss);
    return loss.item<double>();
  }

  Policy net_;
  CatchGame game_;
  at::Generator random_;
  double loss_ = 0;
};

// The actors' threads: they wait at `gate_`, play at the same time, and meet again. They end with this object.
class Actors {
 public:
  explicit Actors(uint64_t seed) {
    for (int i = 0; i < kActors; ++i) actors_.push_back(std::make_unique<Actor>(seed * kActors + i));
    for (int i = 0; i < kActors; ++i) threads_.emplace_back([this, i] { serve(i); });
  }
  ~Actors() {
    leaving_ = true;
    gate_.arrive_and_wait();
    for (auto& thread : threads_) thread.join();
  }
  Actors(const Actors&) = delete;
  Actors& operator=(const Actors&) = delete;

  void play(const Policy& master, Meter& meter) {
    master_ = &master;
    meter_ = &meter;
    gate_.arrive_and_wait();  // everything above is seen by the actors
    gate_.arrive_and_wait();  // everything they did is seen below
    for (auto& error : errors_) {
      if (error) std::rethrow_exception(std::exchange(error, nullptr));
    }
  }
  std::vector<std::unique_ptr<Actor>>& all() { return actors_; }

 private:
  void serve(int i) {
    for (;;) {
      gate_.arrive_and_wait();
      if (leaving_) return;
      try {
        actors_[i]->play(*master_, *meter_);
      } catch (...) {
        errors_[i] = std::current_exception();
      }
      gate_.arrive_and_wait();
    }
  }

  // Written by the owner while the actors wait at the gate.
  const Policy* master_ = nullptr;
  Meter* meter_ = nullptr;
  bool leaving_ = false;
  // Each element belongs to its actor's thread between two passages of the gate.
  std::vector<std::unique_ptr<Actor>> actors_;
  std::array<std::exception_ptr, kActors> errors_;
  std::barrier<> gate_{kActors + 1};
  std::vector<std::thread> threads_;
};

class RlManySmall final : public Trainer {
 public:
  explicit RlManySmall(uint64_t seed)
      : Trainer(seed), policy_(register_module("policy", Policy())), actors_(seed) {
    optimizer_ = &add_optimizer(std::make_unique<torch::optim::Adam>(parameters(), 5e-3));
  }

  double step(Meter& meter) override {
    actors_.play(policy_, meter);
    double loss = 0;
    optimizer_->zero_grad();
    auto parameters = policy_->parameters();
    for (auto& actor : actors_.all()) {
      const auto learned = actor->net()->parameters();
      for (size_t i = 0; i < parameters.size(); ++i) {
        auto& sum = parameters[i].mutable_grad();
        sum = sum.defined() ? sum + learned[i].grad() : learned[i].grad().clone();
      }
      loss += actor->loss();
    }
    optimizer_->step();
    return loss / (kActors * kMovesPerStep);
  }

  // The share of balls that the policy catches when it always plays its best move.
  double evaluate() override {
    torch::NoGradGuard no_grad;
    constexpr int kGames = 200;
    auto random = at::make_generator<at::CPUGeneratorImpl>(uint64_t{12345});
    int caught = 0;
    for (int i = 0; i < kGames; ++i) {
      CatchGame game;
      game.restart(random);
      double reward = 0;
      while (!game.over()) reward = game.play(policy_->forward(game.look()).first.argmax(1).item<int64_t>());
      caught += reward > 0;
    }
    return static_cast<double>(caught) / kGames;
  }

 private:
  Policy policy_;
  Actors actors_;
  torch::optim::Optimizer* optimizer_;
};

}  // namespace

TrainerInfo rl_many_small() {
  return {.name = "rl_many_small",
          .group = "rl_many_small",
          .what = "actor-critic that learns after every move, 2 actor threads",
          .shows = "the fixed cost of a backward, and concurrency",
          .quality = "balls caught",
          .more_is_better = true,
          .good = 0.9,
          .default_steps = 400,
          .make = [](uint64_t seed) { return std::make_unique<RlManySmall>(seed); }};
}

}  // namespace overdrive::trainers
