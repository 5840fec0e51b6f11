#include "bench/hooks_bench.h"

#include "bench/memory_counter.h"
#include "bench/statistics.h"
#include "engine/engine.h"
#include "hooks/hooks.h"

#include <torch/csrc/autograd/saved_variable.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace overdrive::bench {

namespace {

using at::Tensor;
using hooks::HooksPtr;
using hooks::ScopedHooks;
using torch::autograd::Engine;
using torch::autograd::SavedVariable;
using OnRow = std::function<void(const nlohmann::json&)>;

double seconds_of(const std::function<void()>& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// --- one saved tensor ---

// The least that a hook in C++ can do: no check, no sharing, nothing said.
struct BareHook final : torch::autograd::SavedVariableHooks {
  void call_pack_hook(const Tensor& tensor) override { kept = tensor.detach(); }
  Tensor call_unpack_hook() override { return kept; }
  Tensor kept;
};

class BareEngine final : public Engine {
 public:
  ~BareEngine() override { stop(); }
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return std::make_unique<BareHook>();
  }
  static Engine& stub() {
    static auto* engine = new BareEngine;
    return *engine;
  }
};

class SavedTensorTime {
 public:
  explicit SavedTensorTime(const HooksBenchOptions& options) : rounds_(options.quick ? 3 : options.rounds) {
    const Tensor leaf = at::ones({4}).requires_grad_();
    for (int i = 0; i < kTensors; ++i) tensors_.push_back(leaf * 1.0);
  }

  // Saves each tensor, unpacks each, lets all go: ns for one.
  nlohmann::json row(const std::string& name, double goal_ns) {
    std::vector<double> samples;
    for (int round = -1; round < rounds_; ++round) {
      const double seconds = seconds_of([&] {
        std::vector<SavedVariable> saved;
        saved.reserve(tensors_.size());
        for (const Tensor& tensor : tensors_) saved.emplace_back(tensor, /*is_output=*/false);
        for (const SavedVariable& one : saved) one.unpack();
      });
      if (round >= 0) samples.push_back(seconds * 1e9 / kTensors);
    }
    const Interval interval = median_interval(samples);
    nlohmann::json row{{"table", "saved tensor"},
                       {"name", name},
                       {"ns", interval.middle},
                       {"ns_lo", interval.lo},
                       {"ns_hi", interval.hi}};
    if (goal_ns > 0) row["goal_ns"] = goal_ns;
    return row;
  }

 private:
  static constexpr int kTensors = 1000;
  const int rounds_;
  std::vector<Tensor> tensors_;
};

void saved_tensors(const HooksBenchOptions& options, const OnRow& on_row) {
  SavedTensorTime time(options);
  on_row(time.row("no hooks", 0));
  uninstall();
  torch::autograd::set_default_engine_stub(&BareEngine::stub);
  on_row(time.row("bare C++ hook that keeps detach()", 0));
  torch::autograd::set_default_engine_stub(&Engine::get_base_engine);
  install();
  {
    const ScopedHooks scope(hooks::keep());
    on_row(time.row("keep", 600));
  }
  {
    const ScopedHooks scope(hooks::keep(), {.share = false});
    on_row(time.row("keep, sharing off", 500));
  }
  {
    const ScopedHooks scope(hooks::keep(), {.share = false, .check_in_place = false});
    on_row(time.row("keep, sharing and in-place check off", 0));
  }
}

// --- speed of packers ---

void packer_speed(const HooksBenchOptions& options, const OnRow& on_row) {
  const int64_t count = options.quick ? 1 << 16 : 16 << 20;  // 64 MiB
  const Tensor x = at::randn({count});
  Tensor a = at::empty_like(x), b = at::empty_like(x);
  const auto two_copies = [&] {
    std::memcpy(a.data_ptr(), x.const_data_ptr(), x.nbytes());
    std::memcpy(b.data_ptr(), a.const_data_ptr(), x.nbytes());
  };
  const auto row = [&](const std::string& name, const HooksPtr& packer, double goal) {
    const hooks::SaveInfo info{.id = 1, .bytes = static_cast<int64_t>(x.nbytes()), .dtype = at::kFloat};
    int64_t bytes = 0;
    const auto there_and_back = [&] {
      hooks::Packed packed = packer->pack(x, info);
      bytes = 0;
      for (const Tensor& part : packed.tensors) bytes += static_cast<int64_t>(part.nbytes());
      packer->unpack(packed, {.node = nullptr, .save = info});
    };
    std::vector<double> ratios;
    for (int round = -1; round < (options.quick ? 3 : std::min(options.rounds, 15)); ++round) {
      const double ours = seconds_of(there_and_back), copies = seconds_of(two_copies);
      if (round >= 0) ratios.push_back(copies / ours);
    }
    const Interval speed = median_interval(ratios);
    nlohmann::json result{{"table", "packer"},
                          {"name", name},
                          {"elements", count},
                          {"speed_of_two_memcpy", speed.middle},
                          {"speed_lo", speed.lo},
                          {"speed_hi", speed.hi},
                          {"bytes_ratio", static_cast<double>(bytes) / static_cast<double>(x.nbytes())}};
    if (goal > 0) result["goal_speed"] = goal;
    on_row(result);
  };
  using hooks::QuantisedType;
  using hooks::Rounding;
  row("int8, nearest", hooks::quantise(), 0.35);
  row("int8, stochastic", hooks::quantise({.rounding = Rounding::kStochastic}), 0);
  row("bfloat16, nearest", hooks::quantise({.type = QuantisedType::kBFloat16}), 0);
  row("bfloat16, stochastic",
      hooks::quantise({.type = QuantisedType::kBFloat16, .rounding = Rounding::kStochastic}), 0);
}

// --- a training step ---

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
  const auto disk = hooks::spill_to_disk();
  const auto int8 = hooks::quantise();
  return {{"none", nullptr},
          {"keep", hooks::keep()},
          {"bfloat16", hooks::quantise({.type = hooks::QuantisedType::kBFloat16})},
          {"int8", int8},
          {"int8, packed late", hooks::schedulable(int8, {.depth = 0})},
          {"spill_to_disk", disk},
          {"spill_to_disk, fetched early", hooks::schedulable(disk, {.window_tensors = 0})},
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
      one.ms.push_back(seconds_of([&] { forward(net, one.packer).backward(); }) * 1e3);
    }
  }
}

void steps(const HooksBenchOptions& options, bool timed, const OnRow& on_row) {
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

}  // namespace

void run_hooks_bench(const HooksBenchOptions& options, const OnRow& on_row) {
  const ScopedInstall installed;
  saved_tensors(options, on_row);
  packer_speed(options, on_row);
  steps(options, /*timed=*/true, on_row);
}

void count_saved_bytes(const HooksBenchOptions& options, const OnRow& on_row) {
  const ScopedInstall installed;
  steps(options, /*timed=*/false, on_row);
}

}  // namespace overdrive::bench
