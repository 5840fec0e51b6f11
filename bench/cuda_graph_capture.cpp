#include "bench/engine_switch.h"
#include "bench/graph_capture.h"
#include "bench/statistics.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <chrono>
#include <nlohmann/json.hpp>

namespace overdrive::bench {
namespace {

struct Captured {
  double capture_ms = 0;
  double replay_ms = 0;
  torch::autograd::variable_list gradients;
};

template <typename Body>
double milliseconds(Body&& body) {
  torch::cuda::synchronize();
  const auto start = std::chrono::steady_clock::now();
  body();
  torch::cuda::synchronize();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// As the host's guide says: warm up and capture on a side stream, so that no node is of the default one.
Captured capture(EngineKind engine, at::Device device, bool quick) {
  const UseEngine use(engine);
  const Network network = network_kinds().front().build(device, quick);
  const c10::cuda::CUDAStream side = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index());
  Captured result;
  at::cuda::CUDAGraph graph;
  {
    const c10::cuda::CUDAStreamGuard on_side(side);
    for (int i = 0; i < 3; ++i) {
      network.drop_gradients();
      network.loss().backward();
    }
    network.drop_gradients();
    result.capture_ms = milliseconds([&] {
      graph.capture_begin();
      network.loss().backward();
      graph.capture_end();
    });
  }
  std::vector<double> replays;
  for (int i = 0; i < 20; ++i) replays.push_back(milliseconds([&] { graph.replay(); }));
  result.replay_ms = median(std::move(replays));
  for (const at::Tensor& p : network.parameters) result.gradients.push_back(p.grad().cpu());
  return result;
}

}  // namespace

nlohmann::json measure_graph_capture(at::Device device, bool quick) {
  if (!device.is_cuda()) return nullptr;
  const Captured stock = capture(EngineKind::kStock, device, quick);
  const Captured ours = capture(EngineKind::kOverdrive, device, quick);
  bool same = stock.gradients.size() == ours.gradients.size();
  for (size_t i = 0; same && i < ours.gradients.size(); ++i)
    same = torch::equal(stock.gradients[i], ours.gradients[i]);
  return {{"stock_capture_ms", stock.capture_ms},
          {"overdrive_capture_ms", ours.capture_ms},
          {"stock_replay_ms", stock.replay_ms},
          {"overdrive_replay_ms", ours.replay_ms},
          {"gradients_have_the_same_bits", same}};
}

}  // namespace overdrive::bench
