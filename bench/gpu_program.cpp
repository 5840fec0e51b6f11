// Question: what does the engine cost in training steps on a real accelerator? overdrive_gpu_bench prints one
// JSON object: for each network the backward on stock, on stock with its threads switched off, and on ours,
// until the call returns ("wall") and until the device has nothing left to do ("synchronised"). Run by
// tools/gpu_check.sh; on the CPU (--device cpu --quick) to see that it runs.
#include "bench/engine_switch.h"
#include "bench/environment.h"
#include "bench/graph_capture.h"
#include "bench/networks.h"
#include "bench/statistics.h"

#include <c10/core/AutogradState.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

namespace overdrive::bench {
namespace {

enum Setting { kStock, kStockOneThread, kOurs, kSettings };
constexpr std::array<const char*, kSettings> kNames = {"stock", "stock_one_thread", "overdrive"};

struct Times {
  std::vector<double> wall, synchronised;  // milliseconds
};

void synchronize(at::Device device) {
  if (!device.is_cpu()) torch::cuda::synchronize(device.index());
}

void time_backward(const Network& network, at::Device device, Setting setting, Times& times) {
  const UseEngine use(setting == kOurs ? EngineKind::kOverdrive : EngineKind::kStock);
  auto& state = c10::AutogradState::get_tls_state();
  state.set_multithreading_enabled(setting != kStockOneThread);
  for (const bool counts : {false, true}) {  // once for what starts with the engine
    network.drop_gradients();
    const at::Tensor loss = network.loss();
    synchronize(device);
    const auto start = std::chrono::steady_clock::now();
    const auto passed = [&] {
      return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    };
    loss.backward();
    const double wall = passed();
    synchronize(device);
    if (!counts) continue;
    times.wall.push_back(wall);
    times.synchronised.push_back(passed());
  }
  state.set_multithreading_enabled(true);
}

nlohmann::json measure(const NetworkKind& kind, at::Device device, int rounds, bool quick) {
  const Network network = kind.build(device, quick);
  std::array<Times, kSettings> times;
  for (int round = 0; round < rounds; ++round) {
    // Who goes first changes, so that a machine that slows down favours nobody.
    for (int turn = 0; turn < kSettings; ++turn) {
      const int setting = (round + turn) % kSettings;
      time_backward(network, device, static_cast<Setting>(setting), times[static_cast<size_t>(setting)]);
    }
  }
  nlohmann::json row = {{"network", kind.name}, {"what", kind.what}, {"rounds", rounds}};
  const auto add = [&](const char* what, std::vector<double> Times::*series) {
    for (size_t setting = 0; setting < kSettings; ++setting) {
      const std::vector<double>& of_setting = times[setting].*series;
      row[what][std::string(kNames[setting]) + "_ms"] = median(of_setting);
      if (setting == kStock) continue;
      std::vector<double> ratios;
      for (size_t i = 0; i < of_setting.size(); ++i)
        ratios.push_back(of_setting[i] / (times[kStock].*series)[i]);
      const Interval ratio = median_interval(std::move(ratios));
      row[what][std::string(kNames[setting]) + "_ratio"] = {ratio.middle, ratio.lo, ratio.hi};
    }
  };
  add("wall", &Times::wall);
  add("synchronised", &Times::synchronised);
  return row;
}

int run(int argc, char** argv) {
  bool quick = false;
  std::string device_name = "cuda:0";
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0) {
      quick = true;
    } else if (std::strcmp(argv[i], "--device") == 0 && i + 1 < argc) {
      device_name = argv[++i];
    } else {
      std::fprintf(stderr, "usage: overdrive_gpu_bench [--device cuda:N|cpu] [--quick]\n");
      return 2;
    }
  }
  const at::Device device(device_name);
  if (device.is_cuda() && static_cast<int>(torch::cuda::device_count()) <= device.index()) {
    std::fprintf(stderr, "overdrive_gpu_bench: this process sees no device %s\n", device_name.c_str());
    return 2;
  }
  nlohmann::json rows = nlohmann::json::array();
  for (const NetworkKind& kind : network_kinds()) rows.push_back(measure(kind, device, quick ? 2 : 50, quick));
  const nlohmann::json all = {{"benchmark", "gpu"},
                              {"device", device_name},
                              {"environment", environment()},
                              {"rows", std::move(rows)},
                              {"graph_capture", measure_graph_capture(device, quick)}};
  std::printf("%s\n", all.dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace overdrive::bench

int main(int argc, char** argv) { return overdrive::bench::run(argc, argv); }
