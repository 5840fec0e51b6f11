// Brings a cart to its place and keeps it there, by the policy and the update of define_more.py: cart cart.od
// STATE
#include <overdrive/replay/step_file.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <iostream>

namespace {

struct Cart {
  double place = 0, speed = 0;
  at::Tensor state() const { return at::tensor({place, speed}, at::kFloat).unsqueeze(0); }
  // The reward of a push.
  double push(double force) {
    speed += 0.1 * force;
    place += 0.1 * speed;
    return -place * place - 0.1 * speed * speed;
  }
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) return std::cerr << "cart FILE STATE\n", 2;
  at::set_num_threads(1);
  at::manual_seed(0);
  overdrive::Step step = overdrive::load_step(argv[1]);
  // States, actions, rewards and the states after, in turn.
  constexpr int64_t kMost = 10'000, kBatch = 64;
  const std::vector<at::Tensor> memory{at::zeros({kMost, 2}), at::zeros({kMost, 1}), at::zeros({kMost, 1}),
                                       at::zeros({kMost, 2})};
  int64_t seen = 0;
  for (int episode = 1; episode <= 80; ++episode) {
    Cart cart{.place = at::rand({1}).item<double>() * 2 - 1};
    double sum = 0;
    for (int i = 0; i < 60; ++i, ++seen) {
      const at::Tensor before = cart.state(), action = step.call("act", {before})[0];
      const double reward = cart.push(action.item<double>());
      sum += reward;
      const std::vector<at::Tensor> met{before, action, at::full({1, 1}, reward), cart.state()};
      for (size_t k = 0; k < met.size(); ++k) memory[k].narrow(0, seen % kMost, 1).copy_(met[k]);
      if (seen < kBatch) continue;
      const at::Tensor drawn = at::randint(std::min(seen, kMost), {kBatch}, at::kLong);
      std::vector<at::Tensor> batch;
      for (const at::Tensor& each : memory) batch.push_back(each.index_select(0, drawn));
      step.call("update", batch);
    }
    if (episode % 10 == 0) std::cout << "episode " << episode << ": reward " << sum << '\n';
  }
  step.save_state(argv[2]);
} catch (const c10::Error& error) {  // it names the file
  return std::cerr << error.what_without_backtrace() << '\n', 1;
}
