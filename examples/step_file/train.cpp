// Trains what define.py wrote, on the digits, without Python: train digits.od DATA_FOLDER state.pt
#include <overdrive/replay/step_file.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <fstream>
#include <iostream>

namespace {

// The bytes behind the header of a file of the data set.
at::Tensor bytes_of(const std::string& path, int64_t header) {
  std::ifstream file(path, std::ios::binary);
  const std::string all((std::istreambuf_iterator<char>(file)), {});
  TORCH_CHECK(all.size() > static_cast<size_t>(header), "cannot read ", path);
  const int64_t count = static_cast<int64_t>(all.size()) - header;
  return at::from_blob(const_cast<char*>(all.data()) + header, {count}, at::kByte).clone();
}

int train(const std::string& file, const std::string& data, const std::string& state) {
  at::set_num_threads(1);
  at::manual_seed(0);
  overdrive::Step step = overdrive::load_step(file);
  const at::Tensor labels = bytes_of(data + "/digits-labels.idx1-ubyte", 8).to(at::kLong);
  const at::Tensor images =
      bytes_of(data + "/digits-images.idx3-ubyte", 16).reshape({-1, 1, 8, 8}).to(at::kFloat).div_(16);
  constexpr int64_t kBatch = 50;
  const int64_t tested = 300, batches = (labels.size(0) - tested) / kBatch;
  for (int epoch = 0; epoch < 8; ++epoch) {
    if (epoch == 5) step.set_learning_rate(1e-3);
    double loss = 0;
    for (int64_t i = 0; i < batches; ++i) {
      const int64_t begin = tested + i * kBatch;
      loss += step({images.narrow(0, begin, kBatch), labels.narrow(0, begin, kBatch)})[0].item<double>();
    }
    int64_t right = 0;
    for (int64_t begin = 0; begin < tested; begin += kBatch) {
      const at::Tensor guessed = step.call("predict", {images.narrow(0, begin, kBatch)})[0];
      right += guessed.eq(labels.narrow(0, begin, kBatch)).sum().item<int64_t>();
    }
    std::cout << "epoch " << epoch << ": loss " << loss / static_cast<double>(batches) << ", " << right
              << " of " << tested << " right\n";
  }
  step.save_state(state);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  return argc == 4 ? train(argv[1], argv[2], argv[3]) : (std::cerr << "train FILE DATA STATE\n", 2);
} catch (const c10::Error& error) {  // it names the file
  return std::cerr << error.what_without_backtrace() << '\n', 1;
}
