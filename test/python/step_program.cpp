// Trains from a step file: step_program FILE STATE RESULTS STEPS (FUNCTION INPUTS)... Each step calls every
// function once, on inputs that are drawn right before: "16x8,16:10" are numbers and whole numbers below 10,
// "-" is none. Prints the milliseconds from the start of the load to the end of the first call, and those of a
// step. It is linked with the small library alone.
#include <overdrive/replay/step_file.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <sstream>

namespace {

at::Tensor drawn(const std::string& text) {
  std::istringstream in(text.substr(0, text.find(':')));
  std::vector<int64_t> sizes;
  for (std::string size; std::getline(in, size, 'x');) sizes.push_back(std::stoll(size));
  const size_t colon = text.find(':');
  return colon == text.npos ? at::randn(sizes)
                            : at::randint(std::stoll(text.substr(colon + 1)), sizes, at::kLong);
}

std::vector<at::Tensor> inputs_of(const std::string& text) {
  std::vector<at::Tensor> inputs;
  std::istringstream in(text == "-" ? "" : text);
  for (std::string each; std::getline(in, each, ',');) inputs.push_back(drawn(each));
  return inputs;
}

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

int run(const std::vector<std::string>& arguments) {
  at::set_num_threads(1);
  const auto begin = std::chrono::steady_clock::now();
  overdrive::Step step = overdrive::load_step(arguments[0]);
  double first = 0;
  std::vector<double> times;
  std::ofstream results(arguments[2], std::ios::binary);
  for (int i = 0; i < std::stoi(arguments[3]); ++i) {
    at::manual_seed(1000 + i);
    double time = 0;
    for (size_t f = 4; f + 1 < arguments.size(); f += 2) {
      const std::vector<at::Tensor> inputs = inputs_of(arguments[f + 1]);
      const auto start = std::chrono::steady_clock::now();
      const at::Tensor result = step.call(arguments[f], inputs).at(0).contiguous();
      time += milliseconds_since(start);
      if (i == 0 && f == 4) first = milliseconds_since(begin);
      results.write(static_cast<const char*>(result.const_data_ptr()),
                    static_cast<std::streamsize>(result.nbytes()));
    }
    times.push_back(time);
  }
  step.save_state(arguments[1]);
  std::sort(times.begin(), times.end());
  std::cout << first << ' ' << times[times.size() / 2] << '\n';
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
