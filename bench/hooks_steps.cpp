#include "bench/benchmark.h"
#include "bench/memory_counter.h"
#include "bench/statistics.h"
#include "bench/timing.h"
#include "engine/engine.h"
#include "hooks/hooks.h"

#include <torch/torch.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace overdrive::bench {
namespace {

using at::Tensor;
using hooks::HooksPtr;
using hooks::ScopedHooks;
namespace nn = torch::nn;

struct BlockImpl : nn::Module {
  explicit BlockImpl(int64_t width)
      : norm1(register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({width})))),
        norm2(register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({width})))),
        attention(
            register_module("attention", nn::MultiheadAttention(nn::MultiheadAttentionOptions(width, 4)))),
        wide(register_module("wide", nn::Linear(width, 4 * width))),
        narrow(register_module("narrow", nn::Linear(4 * width, width))) {}
  Tensor forward(const Tensor& x) {
    const Tensor normed = norm1(x);
    const Tensor y = x + std::get<0>(attention(normed, normed, normed));
    return y + narrow(at::gelu(wide(norm2(y))));
  }
  nn::LayerNorm norm1, norm2;
  nn::MultiheadAttention attention;
  nn::Linear wide, narrow;
};
TORCH_MODULE(Block);

struct Net {
  std::string name;
  nn::Sequential model;
  Tensor input;
};

std::vector<Net> nets(bool quick) {
  torch::manual_seed(1);
  nn::Sequential transformer;
  const int64_t layers = quick ? 1 : 12, width = quick ? 16 : 128;
  for (int64_t i = 0; i < layers; ++i) transformer->push_back(Block(width));
  nn::Sequential conv;
  for (int64_t i = 0, in = 3, out = quick ? 4 : 32; i < 6; ++i, in = out) {
    conv->push_back(nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1)));
    conv->push_back(nn::BatchNorm2d(out));
    conv->push_back(nn::ReLU());
  }
  const int64_t length = quick ? 4 : 64, side = quick ? 8 : 32;
  return {{"transformer", transformer, at::randn({length, 8, width})},
          {"conv", conv, at::randn({8, 3, side, side})}};
}

struct Contender {
  std::string name;
  HooksPtr packer;
  std::vector<double> ms = {};
  int64_t saved_bytes = 0;
  int64_t peak_bytes = 0;
};

std::vector<Contender> contenders() {
  const auto disk = hooks::spill_to_disk(), uncached = hooks::spill_to_disk({.drop_cached = true});
  const auto int8 = hooks::quantise();
  return {{"none", nullptr},
          {"keep", hooks::keep()},
          {"bfloat16", hooks::quantise({.type = hooks::QuantisedType::kBFloat16})},
          {"int8", int8},
          {"int8, packed late", hooks::schedulable(int8, {.depth = 0})},
          {"spill_to_disk", disk},
          {"spill_to_disk, fetched early", hooks::schedulable(disk, {.window_tensors = 0})},
          {"uncached spill", uncached},
          {"uncached spill, fetched early", hooks::schedulable(uncached, {.window_tensors = 0})},
          {"int8, then spill_to_disk", hooks::compose(int8, disk)}};
}

Tensor forward(Net& net, const HooksPtr& packer) {
  const ScopedHooks scope(packer);
  return net.model->forward(net.input).square().mean();
}

void count_bytes(Net& net, Contender& one) {
  forward(net, one.packer).backward();  // gradients are there, and whatever is made once
  const MemoryCounter memory;
  Tensor loss = forward(net, one.packer);
  one.saved_bytes = memory.peak().kept_bytes;
  loss.backward();
  one.peak_bytes = memory.peak().total();
}

nlohmann::json bytes_row(const Net& net, const Contender& one, const Contender& plain) {
  const auto ratio = [](int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); };
  return {{"table", "step"},
          {"net", net.name},
          {"packer", one.name},
          {"saved_bytes", one.saved_bytes},
          {"peak_bytes", one.peak_bytes},
          {"saved_ratio", ratio(one.saved_bytes, plain.saved_bytes)},
          {"peak_ratio", ratio(one.peak_bytes, plain.peak_bytes)}};
}

// Every packer in each round, so that all see the same machine.
void time_steps(Net& net, std::vector<Contender>& all, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    for (Contender& one : all) {
      one.ms.push_back(1e3 * seconds_of([&] { forward(net, one.packer).backward(); }));
    }
  }
}

}  // namespace

void hooked_steps(const Options& options, bool timed, const OnRow& on_row) {
  const ScopedInstall installed;
  for (Net& net : nets(options.quick)) {
    std::vector<Contender> all = contenders();
    for (Contender& one : all) count_bytes(net, one);
    if (timed) time_steps(net, all, options.quick ? 2 : std::min(options.rounds, 15));
    for (const Contender& one : all) {
      nlohmann::json row = bytes_row(net, one, all[0]);
      if (timed) {
        row["ms"] = median(one.ms);
        row["ms_ratio"] = median(one.ms) / median(all[0].ms);
        row["added_ms"] = median(one.ms) - median(all[0].ms);
      }
      on_row(row);
    }
  }
}

}  // namespace overdrive::bench
