// What the tests of step files share: a training that is captured and saved, and goes on from the file beside
// an eager twin, bit by bit.
#pragma once

#include "replay/file/step_file.h"
#include "test/replay/replay_fixture.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace overdrive::test {

// A path of its own, which is removed with the test.
class FilePath {
 public:
  explicit FilePath(const std::string& name = "step.od")
      : folder_(std::filesystem::temp_directory_path() / c10::str("overdrive-step-", ::getpid(), "-", next())) {
    std::filesystem::create_directories(folder_);
    path_ = (folder_ / name).string();
  }
  ~FilePath() { std::filesystem::remove_all(folder_); }
  FilePath(const FilePath&) = delete;
  FilePath& operator=(const FilePath&) = delete;
  operator const std::string&() const { return path_; }

 private:
  static int next() {
    static int last = 0;
    return last++;
  }
  std::filesystem::path folder_;
  std::string path_;
};

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
      if (std::string text = difference(loaded); !text.empty()) return c10::str("step ", steps, ": ", text);
    }
    return "";
  }

  std::string difference(const Step& loaded) const {
    std::map<std::string, at::Tensor> named;
    for (const auto& [name, tensor] : loaded.named_tensors()) named[name] = tensor;
    const auto compare = [&](const std::string& name, const at::Tensor& tensor) -> std::string {
      if (!named.contains(name)) return "there is no " + name;
      return same_bits(named[name], tensor) ? "" : name + " differs";
    };
    for (const auto& each : eager.model->named_parameters()) {
      if (std::string text = compare(each.key(), each.value()); !text.empty()) return text;
      if (each.value().grad().defined() && named.contains(each.key() + ".grad")) {
        if (std::string text = compare(each.key() + ".grad", each.value().grad()); !text.empty()) return text;
      }
    }
    for (const auto& each : eager.model->named_buffers()) {
      if (std::string text = compare(each.key(), each.value()); !text.empty()) return text;
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
