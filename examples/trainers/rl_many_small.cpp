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
  using Tensors = std::vector<torch::Tensor>;
  using Function = std::function<Tensors(const Tensors&)>;

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
  // What it makes of what it sees: logarithms of chances, the value, an action.
  Tensors act(const Tensors& seen) {
    auto [log_chances, value] = net_->forward(seen[0]);
    const auto chances = log_chances.detach().to(torch::kCPU, torch::kFloat32).exp();
    return {log_chances, value, torch::multinomial(chances, 1, true, random_)};
  }
  // The value alone.
  Tensors value(const Tensors& seen) { return {net_->forward(seen[0]).second}; }
  // The loss of a move, as a function of the first two, of the action and what it is worth.
  static Tensors loss_of(const Tensors& move) {
    const torch::Tensor &log_chances = move[0], &value = move[1];
    const auto surprise = move[3] - value;
    const auto entropy = -(log_chances.exp() * log_chances).sum();
    return {surprise.pow(2).sum() - (surprise.detach() * log_chances.gather(1, move[2])).sum() -
            0.02 * entropy};
  }
  // How the three are called.
  void call_by(Function act, Function value, Function loss) {
    act_ = std::move(act);
    value_ = std::move(value);
    loss_of_ = std::move(loss);
  }
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
    const auto seen = meter.forward([&] { return act_({look()}); });
    const torch::Tensor& action = seen[2];
    double worth = game_.play(action.item<int64_t>());  // the reward, and what the next state promises
    if (game_.over()) {
      game_.restart(random_);
    } else {
      torch::NoGradGuard no_grad;
      worth += kDiscount * value_({look()})[0].item<double>();
    }
    const auto loss = meter.forward([&] {
      return loss_of_({seen[0], seen[1], action.to(options_.device()), torch::full({1, 1}, worth, options_)});
    })[0];
    meter.backward(loss);
    return loss.item<double>();
  }

  torch::Tensor look() const { return game_.look(options_); }

  const torch::TensorOptions options_;
  Policy net_;
  Function act_, value_, loss_of_;
  CatchGame game_;
  at::Generator random_;
  double loss_ = 0;
};

class RlManySmall final : public Trainer {
 public:
  explicit RlManySmall(const Setup& setup) : Trainer(setup), policy_(register_module("policy", Policy())) {
    for (int i = 0; i < kActors; ++i) {
      actors_.push_back(std::make_unique<Actor>(setup.seed * kActors + static_cast<uint64_t>(i), options()));
      Actor& actor = *actors_.back();
      actor.call_by(by_part([&actor](const auto& seen) { return actor.act(seen); }),
                    by_part([&actor](const auto& seen) { return actor.value(seen); }), by_part(Actor::loss_of));
    }
    optimizer_ = &add_optimizer(std::make_unique<torch::optim::Adam>(parameters(), 5e-3));
    update_ = add_learning(*optimizer_, [this](const auto& gradients, Meter&) { return update(gradients); });
  }

  double step(Meter& meter) override {
    team_.run([&](int i) { actors_[static_cast<size_t>(i)]->play(policy_, meter); });
    double loss = 0;
    Tensors gradients;
    for (auto& actor : actors_) {
      for (const auto& learned : actor->net()->parameters()) gradients.push_back(learned.grad());
      loss += actor->loss();
    }
    learn(update_, gradients, meter);
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
  Function by_part(Function function) {
    return
        [this, number = add_part(std::move(function))](const Tensors& inputs) { return call(number, inputs); };
  }

  // Along the sum of what the actors have learned, in their order.
  torch::Tensor update(const Tensors& gradients) {
    optimizer_->zero_grad();
    auto parameters = policy_->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      torch::Tensor sum = gradients[i];
      for (size_t k = i + parameters.size(); k < gradients.size(); k += parameters.size())
        sum = sum + gradients[k];
      parameters[i].mutable_grad() = sum;
    }
    optimizer_->step();
    return torch::zeros({});
  }

  Policy policy_;
  std::vector<std::unique_ptr<Actor>> actors_;
  ThreadTeam team_{kActors};  // last, so that its threads end first
  torch::optim::Optimizer* optimizer_;
  size_t update_ = 0;
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
