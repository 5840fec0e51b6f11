#include "examples/recipes/cpp/recipe.h"

#include <overdrive/engine/engine.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>

namespace recipe {

namespace {

constexpr const char* kNames[] = {"stock", "switched", "captured"};

double median(std::vector<double> numbers) {
  if (numbers.empty()) return 0;
  std::sort(numbers.begin(), numbers.end());
  const size_t half = numbers.size() / 2;
  return numbers.size() % 2 == 1 ? numbers[half] : (numbers[half - 1] + numbers[half]) / 2;
}

// FNV-1a over all bytes of the tensors.
std::string digest_of(const std::vector<at::Tensor>& tensors) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor plain = tensor.detach().contiguous();
    const auto* bytes = static_cast<const unsigned char*>(plain.const_data_ptr());
    for (size_t i = 0; i < plain.nbytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

Run train_in(Mode mode, bool is_short, void (*train)(Run&)) {
  torch::manual_seed(0);
  mode == Mode::kStock ? void(overdrive::uninstall()) : overdrive::install();
  Run run(mode, is_short);
  train(run);
  std::cout << run.json() << std::endl;
  return run;
}

bool is_as_stock(const Run& run, const Run& stock) {
  if (run.digest() != stock.digest()) {
    std::cerr << kNames[static_cast<int>(run.mode())] << ": other parameters than stock's\n";
    return false;
  }
  if (run.captured && run.replayed() == 0) {
    std::cerr << "captured: nothing was replayed\n";
    return false;
  }
  return true;
}

int usage() {
  std::cerr << "usage: [--mode stock|switched|captured|all] [--short]\n";
  return 2;
}

}  // namespace

double Run::Clock::now() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void Run::done(const std::vector<at::Tensor>& trained, uint64_t replayed) {
  digest_ = digest_of(trained);
  replayed_ = replayed;
}

// As recipe.py computes them.
std::string Run::json() const {
  const size_t first = std::max<size_t>(1, std::min<size_t>(20, times_.size() / 4)), half = times_.size() / 2;
  double part = 0, early = 0;
  for (size_t i = 0; i < times_.size(); ++i) {
    part += times_[i];
    if (i < first) early += times_[i];
  }
  const double step = median({times_.begin() + static_cast<std::ptrdiff_t>(half), times_.end()});
  char text[512];
  std::snprintf(text, sizeof text,
                R"({"mode": "%s", "digest": "%s", "steps": %zu, "step": %.9f, "part": %.6f, "whole": %.6f, )"
                R"("warm_up": %.6f, "replayed": %llu})",
                kNames[static_cast<int>(mode_)], digest_.c_str(), times_.size(), step, part, Clock::now(),
                early - static_cast<double>(first) * step, static_cast<unsigned long long>(replayed_));
  return text;
}

int main_of(int argc, char** argv, void (*train)(Run&)) {
  std::string mode = "captured";
  bool is_short = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--short") == 0) {
      is_short = true;
    } else if (std::strcmp(argv[i], "--mode") == 0 && i + 1 < argc) {
      mode = argv[++i];
    } else {
      return usage();
    }
  }
  at::set_num_threads(1);
  if (mode == "all") {
    const Run stock = train_in(Mode::kStock, is_short, train);
    const bool switched = is_as_stock(train_in(Mode::kSwitched, is_short, train), stock);
    const bool captured = is_as_stock(train_in(Mode::kCaptured, is_short, train), stock);
    return switched && captured ? 0 : 1;
  }
  const auto* const name = std::find(std::begin(kNames), std::end(kNames), mode);
  if (name == std::end(kNames)) return usage();
  train_in(static_cast<Mode>(name - std::begin(kNames)), is_short, train);
  return 0;
}

}  // namespace recipe
