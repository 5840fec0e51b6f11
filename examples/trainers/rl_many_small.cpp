// Many small backwards: an actor-critic whose nets are tiny and which learns after every single move, on
// several actor threads at once.
//
// What to look for: a backward here has a dozen nodes, so what a backward costs before its first node and after
// its last one is most of it; and backwards of different threads run at the same time. The result does not
// depend on how the threads interleave: each actor has its own copy of the net, and gradients are summed in the
// order of the actors.
#include "examples/trainers/thread_team.h"
#include "examples/trainers/trainer.h"

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

  torch::Tensor look(const torch::TensorOptions& options) const {
    auto seen = torch::zeros({1, kInputs});
    float* cells = seen.data_ptr<float>();
    cells[kColumns - 1 + ball_ - paddle_] = cells[kOffsets + row_] = 1;
    return seen.to(options);
  }

  // Moves, lets the ball fall one row and gives the reward.
  double play(int64_t action) {
    paddle_ = std::clamp<int64_t>(paddle_ + action - 1, 0, kColumns - 1);
    ++row_;
    if (!over()) return 0;
    return paddle_ == ball_ ? 1 : -1;
  }

  // Where everything is, for a checkpoint.
  torch::Tensor state() const { return torch::tensor({ball_, paddle_, row_}); }
  void set_state(const torch::Tensor& state) {
    ball_ = state[0].item<int64_t>();
    paddle_ = state[1].item<int64_t>();
    row_ = state[2].item<int64_t>();
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
  using Forward = std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>&)>;

  Actor(uint64_t seed, const torch::TensorOptions& options)
      : options_(options), random_(at::make_generator<at::CPUGeneratorImpl>(seed)) {
    net_->to(options.device(), c10::typeMetaToScalarType(options.dtype()));
    game_.restart(random_);
  }

  // Plays kMovesPerStep moves with the weights of `master` and learns from each at once.
  void play(const Policy& master, Meter& meter) {
    copy_weights(master);
    loss_ = 0;
    for (int i = 0; i < kMovesPerStep; ++i) loss_ += learn_from_one_move(meter);
  }

  Policy& net() { return net_; }
  // The net, as a function of what it sees; and how it is called.
  Forward forward() {
    return [this](const std::vector<torch::Tensor>& seen) {
      auto [log_chances, value] = net_->forward(seen[0]);
      return std::vector<torch::Tensor>{log_chances, value};
    };
  }
  void call_by(Forward forward) { forward_ = std::move(forward); }
  double loss() const { return loss_; }

  // The game and the source of chance; the weights are the master's.
  void save(torch::serialize::OutputArchive& archive) const {
    archive.write("game", game_.state(), /*is_buffer=*/true);
    archive.write("random", random_.get_state(), /*is_buffer=*/true);
  }
  void load(torch::serialize::InputArchive& archive) {
    torch::Tensor game, random;
    archive.read("game", game, /*is_buffer=*/true);
    archive.read("random", random, /*is_buffer=*/true);
    game_.set_state(game);
    random_.set_state(random);
  }

 private:
  void copy_weights(const Policy& master) {
    torch::NoGradGuard no_grad;
    const auto from = master->parameters();
    auto to = net_->parameters();
    for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
    net_->zero_grad();
  }

  double learn_from_one_move(Meter& meter) {
    const auto seen = meter.forward([&] { return forward_({look()}); });
    const torch::Tensor &log_chances = seen[0], &value = seen[1];
    const auto chances = log_chances.detach().to(torch::kCPU, torch::kFloat32).exp();
    const auto action = torch::multinomial(chances, 1, true, random_).item<int64_t>();
    double worth = game_.play(action);  // the reward, and what the next state promises
    if (game_.over()) {
      game_.restart(random_);
    } else {
      torch::NoGradGuard no_grad;
      worth += kDiscount * forward_({look()})[1].item<double>();
    }
    const auto surprise = worth - value;
    const auto entropy = -(log_chances.exp() * log_chances).sum();
    const auto loss =
        surprise.pow(2).sum() - (surprise.detach() * log_chances.select(1, action)).sum() - 0.02 * entropy;
    meter.backward(loss);
    return loss.item<double>();
  }

  torch::Tensor look() const { return game_.look(options_); }

  const torch::TensorOptions options_;
  Policy net_;
  Forward forward_;
  CatchGame game_;
  at::Generator random_;
  double loss_ = 0;
};

class RlManySmall final : public Trainer {
 public:
  explicit RlManySmall(const Setup& setup) : Trainer(setup), policy_(register_module("policy", Policy())) {
    for (int i = 0; i < kActors; ++i) {
      actors_.push_back(std::make_unique<Actor>(setup.seed * kActors + static_cast<uint64_t>(i), options()));
      const size_t number = add_part(actors_.back()->forward());
      actors_.back()->call_by([this, number](const auto& seen) { return call(number, seen); });
    }
    optimizer_ = &add_optimizer(std::make_unique<torch::optim::Adam>(parameters(), 5e-3));
  }

  double step(Meter& meter) override {
    team_.run([&](int i) { actors_[static_cast<size_t>(i)]->play(policy_, meter); });
    double loss = 0;
    optimizer_->zero_grad();
    auto parameters = policy_->parameters();
    for (auto& actor : actors_) {
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
      while (!game.over())
        reward = game.play(policy_->forward(game.look(options())).first.argmax(1).item<int64_t>());
      caught += reward > 0;
    }
    return static_cast<double>(caught) / kGames;
  }

  // A training that is resumed goes on with the games that were under way, so it ends with the same bits.
  void save(torch::serialize::OutputArchive& archive) const override {
    Trainer::save(archive);
    for (size_t i = 0; i < actors_.size(); ++i) {
      torch::serialize::OutputArchive inner(archive.compilation_unit());
      actors_[i]->save(inner);
      archive.write("actor" + std::to_string(i), inner);
    }
  }
  void load(torch::serialize::InputArchive& archive) override {
    Trainer::load(archive);
    for (size_t i = 0; i < actors_.size(); ++i) {
      torch::serialize::InputArchive inner;
      archive.read("actor" + std::to_string(i), inner);
      actors_[i]->load(inner);
    }
  }

 private:
  Policy policy_;
  std::vector<std::unique_ptr<Actor>> actors_;
  ThreadTeam team_{kActors};  // last, so that its threads end first
  torch::optim::Optimizer* optimizer_;
};

}  // namespace

TrainerInfo rl_many_small() {
  return {.name = "rl_many_small",
          .what = "actor-critic that learns after every move, 2 actor threads",
          .shows = "the fixed cost of a backward, and concurrency",
          .quality = "balls caught",
          .good = 0.9,
          .default_steps = 400,
          .make = [](const Setup& setup) { return std::make_unique<RlManySmall>(setup); }};
}

}  // namespace overdrive::trainers
