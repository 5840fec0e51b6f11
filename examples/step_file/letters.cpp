// Trains the GRU of define_more.py on a text, letter by letter: letters letters.od TEXT STATE
#include <overdrive/replay/step_file.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <fstream>
#include <iostream>

int main(int argc, char** argv) try {
  if (argc != 4) return std::cerr << "letters FILE TEXT STATE\n", 2;
  at::set_num_threads(1);
  at::manual_seed(0);
  std::ifstream file(argv[2], std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  constexpr int64_t kBatch = 16, kLength = 33;
  if (text.size() <= kLength) return std::cerr << argv[2] << " has too few letters\n", 1;
  const at::Tensor letters =
      at::from_blob(const_cast<char*>(text.data()), {static_cast<int64_t>(text.size())}, at::kByte)
          .to(at::kLong)
          .remainder(128);

  overdrive::Step step = overdrive::load_step(argv[1]);
  double loss = 0;
  for (int i = 1; i <= 300; ++i) {
    std::vector<at::Tensor> rows;
    for (const at::Tensor& begin : at::randint(letters.size(0) - kLength, {kBatch}, at::kLong).unbind())
      rows.push_back(letters.narrow(0, begin.item<int64_t>(), kLength));
    loss += step({at::stack(rows)})[0].item<double>();
    if (i % 50 != 0) continue;
    std::cout << "step " << i << ": loss " << loss / 50 << '\n';
    loss = 0;
  }
  step.save_state(argv[3]);
} catch (const c10::Error& error) {  // it names the file
  return std::cerr << error.what_without_backtrace() << '\n', 1;
}
