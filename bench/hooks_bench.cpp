// What do hooks for saved tensors cost, and what do they save? Time of a saved tensor, speed of packers beside
// a plain copy, bytes that a training step holds under each.
#include "bench/benchmark.h"
#include "bench/statistics.h"
#include "bench/timing.h"
#include "engine/engine.h"
#include "hooks/hooks.h"

#include <torch/csrc/autograd/saved_variable.h>
#include <torch/torch.h>

#include <algorithm>
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
  explicit SavedTensorTime(const Options& options) : rounds_(options.quick ? 3 : options.rounds) {
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

void saved_tensors(const Options& options, const OnRow& on_row) {
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

void packer_speed(const Options& options, const OnRow& on_row) {
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

void hooks_bench(const Options& options, const OnRow& on_row) {
  const ScopedInstall installed;
  saved_tensors(options, on_row);
  packer_speed(options, on_row);
  hooked_steps(options, /*timed=*/true, on_row);
}

std::string hooks_row(const nlohmann::json& row) {
  const auto number = [&](const char* name) { return row[name].get<double>(); };
  const auto text = [&](const char* name) { return row[name].get<std::string>(); };
  if (row["table"] == "saved tensor") {
    return fitted(format("%-40s %8.1f ns [%.1f, %.1f]", text("name").c_str(), number("ns"), number("ns_lo"),
                         number("ns_hi")));
  }
  if (row["table"] == "packer") {
    return fitted(format("%-40s %8.3f of two memcpy [%.3f, %.3f]   %.4f of the bytes", text("name").c_str(),
                         number("speed_of_two_memcpy"), number("speed_lo"), number("speed_hi"),
                         number("bytes_ratio")));
  }
  return fitted(format("%-12s %-30s %9.2f ms (%.2f, %+.2f ms)   saved %11.0f B (%.3f)   peak %11.0f B (%.3f)",
                       text("net").c_str(), text("packer").c_str(), number("ms"), number("ms_ratio"),
                       number("added_ms"), number("saved_bytes"), number("saved_ratio"), number("peak_bytes"),
                       number("peak_ratio")));
}

}  // namespace

Benchmark hooks_benchmark() {
  return {.name = "hooks",
          .what = "Time saved-tensor hooks and count the bytes they save.",
          .lists = {{.text = hooks_row}},
          .measure = measured_by(hooks_bench),
          .rounds = "--rounds"};
}

}  // namespace overdrive::bench
