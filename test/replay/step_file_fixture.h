// What the tests of step files share: a training that is captured and saved, and goes on from the file beside
// an eager twin, bit by bit.
#pragma once

#include "test/replay/replay_fixture.h"

#include <fstream>
#include <sstream>

namespace overdrive::test {

inline std::string read_file(const std::string& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}
inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// A training by this loss.
inline Training with_loss(std::shared_ptr<torch::nn::Module> model,
                          std::function<at::Tensor(const Tensors&)> loss_of, std::function<Tensors(int)> inputs,
                          const MakeOptimizer& optimizer = adam()) {
  Training training{.model = model, .optimizer = optimizer(model->parameters()), .inputs = std::move(inputs)};
  training.step = [raw = training.optimizer.get(), loss_of](const Tensors& given) {
    raw->zero_grad();
    at::Tensor loss = loss_of(given);
    loss.backward();
    raw->step();
    return loss;
  };
  return training;
}

// The same training twice: one eager, one captured and, after save(), from a file.
class FromFile {
 public:
  static constexpr int kBefore = 8;

  explicit FromFile(const SideBySide::Make& make, const std::function<void(CaptureOptions&)>& more = {}) {
    torch::manual_seed(7);
    eager = make();
    torch::manual_seed(7);
    captured = make();
    CaptureOptions options;
    if (more) more(options);
    if (options.optimizers.empty()) options.optimizer = captured.optimizer.get();
    if (options.modules.empty() && captured.model) options.modules = {captured.model};
    step = std::make_unique<CapturedStep>(
        [this](const Tensors& inputs) { return Tensors{captured.step(inputs)}; }, options);
    for (; steps < kBefore; ++steps) {
      torch::manual_seed(100 + steps);
      const Tensors inputs = captured.inputs(steps);
      step->call(inputs);
      torch::manual_seed(100 + steps);
      eager.step(eager.inputs(steps));
    }
  }

  Step save_and_load(LoadOptions options = {}) {
    step->save(path);
    return load_step(path, options);
  }

  // Where the first difference is; empty when every bit is the same.
  std::string go_on(Step& loaded, int count) {
    for (int end = steps + count; steps < end; ++steps) {
      torch::manual_seed(100 + steps);
      const at::Tensor expected = eager.step(eager.inputs(steps)).detach();
      const at::Tensor drawn = at::rand({4});
      torch::manual_seed(100 + steps);
      const at::Tensor result = loaded(captured.inputs(steps)).at(0);
      if (!same_bits(expected, result)) return c10::str("step ", steps, ": the result differs");
      if (!same_bits(drawn, at::rand({4}))) return c10::str("step ", steps, ": the generators differ");
      if (std::string text = difference(loaded, *eager.model); !text.empty())
        return c10::str("step ", steps, ": ", text);
    }
    return "";
  }

  Training eager;
  Training captured;
  std::unique_ptr<CapturedStep> step;
  FilePath path;
  int steps = 0;
};

}  // namespace overdrive::test
