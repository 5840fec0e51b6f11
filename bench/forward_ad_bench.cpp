// What do forward-mode levels cost beyond the layers they stand on, and when is forward mode the cheaper way?
// Each of ours beside the other way to the same numbers.
#include "bench/benchmark.h"
#include "bench/statistics.h"
#include "bench/support/tensor_bytes.h"
#include "bench/timing.h"
#include "forward_ad/forward_ad.h"

#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/TensorWrapper.h>
#include <c10/util/Exception.h>
#include <torch/torch.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace overdrive::bench {

namespace {

namespace fwd = forward_ad;
namespace ft = at::functorch;
using at::Tensor;
using Function = std::function<Tensor(const Tensor&)>;

// Two ways to the same numbers, timed in turns; who goes first alternates.
nlohmann::json compare(const Options& options, const std::string& name, const std::string& ours_name,
                       const Call& ours, const std::string& other_name, const Call& other) {
  constexpr double kSampleSeconds = 5e-3;
  const int pairs = options.quick ? 3 : options.rounds;
  const auto seconds = time_in_turns({ours, other}, pairs, options.quick ? 0 : kSampleSeconds);
  std::vector<double> ratios;
  for (size_t i = 0; i < seconds[0].size(); ++i) ratios.push_back(seconds[0][i] / seconds[1][i]);
  Interval ratio = median_interval(ratios);
  return {{"name", name},
          {"ours", ours_name},
          {"other", other_name},
          {"ours_us", median(seconds[0]) * 1e6},
          {"other_us", median(seconds[1]) * 1e6},
          {"ratio", ratio.middle},
          {"ratio_lo", ratio.lo},
          {"ratio_hi", ratio.hi},
          {"pairs", pairs}};
}

// LibTorch's layers called by hand: what a level stands on, without a registry.
Tensor slope_by_hand(const Function& f, const Tensor& x) {
  static int depth = 0;
  Tensor direction = at::ones_like(x);
  int64_t layer =
      ft::initAndPushDynamicLayer(ft::TransformType::Jvp, std::nullopt, std::nullopt, std::nullopt, true);
  if (depth++ == 0) torch::autograd::forward_ad::enter_dual_level();
  Tensor dual = at::_make_dual(ft::makeTensorWrapper(x, layer), ft::makeTensorWrapper(direction, layer), 0);
  Tensor slope = std::get<1>(at::_unpack_dual(f(dual), 0));
  auto* wrapper = ft::maybeGetTensorWrapper(slope);
  Tensor result = wrapper != nullptr && wrapper->level() == layer ? Tensor(wrapper->value()) : slope;
  if (--depth == 0) torch::autograd::forward_ad::exit_dual_level(0);
  ft::popDynamicLayerAndDeleteMetadata();
  return result;
}

Tensor slope_by_driver(const Function& f, const Tensor& x) { return fwd::jvp(f, x, at::ones_like(x)).tangent; }

template <Tensor (*slope)(const Function&, const Tensor&)>
Function nested(int order) {
  Function f = [](const Tensor& x) { return x.pow(4); };
  for (int i = 0; i < order; ++i) f = [f](const Tensor& x) { return slope(f, x); };
  return f;
}

void orders(const Options& options, const OnRow& on_row) {
  Tensor x = at::ones({}, at::kDouble);
  for (int order = 1; order <= 4; ++order) {
    Function ours = nested<slope_by_driver>(order), by_hand = nested<slope_by_hand>(order);
    TORCH_CHECK(at::equal(ours(x), by_hand(x)), "the two ways differ at order ", order);
    nlohmann::json row = compare(
        options, "order " + std::to_string(order) + " of x^4", "jvp nested", [&] { ours(x); }, "layers by hand",
        [&] { by_hand(x); });
    row["goal"] = "ratio <= 1.10";
    on_row(row);
  }
}

Function mlp(int layers, int64_t width) {
  std::vector<Tensor> weights;
  for (int i = 0; i < layers; ++i)
    weights.push_back(at::randn({width, width}) / std::sqrt(static_cast<double>(width)));
  return [weights](const Tensor& x) {
    Tensor y = x;
    for (const Tensor& weight : weights) y = at::linear(y, weight).tanh();
    return y;
  };
}

void jvp_of_a_small_network(const Options& options, const OnRow& on_row) {
  for (int64_t batch : {1, 64, 512}) {
    if (options.quick && batch > 1) return;
    Function f = mlp(4, 64);
    Tensor x = at::randn({batch, 64}), v = at::randn({batch, 64});
    nlohmann::json row = compare(
        options, "jvp of a 4x64 MLP, batch " + std::to_string(batch), "jvp", [&] { fwd::jvp(f, x, v); },
        "plain call", [&] { f(x); });
    row["over_2_plain_us"] = row["ours_us"].get<double>() - 2 * row["other_us"].get<double>();
    row["goal"] = "over_2_plain_us <= 15";
    on_row(row);
  }
}

// Double backward as a program would write it.
Tensor hvp_by_double_backward(const Function& f, const Tensor& point, const Tensor& v) {
  Tensor x = point.detach().set_requires_grad(true);
  Tensor gradient = torch::autograd::grad({f(x)}, {x}, {}, true, /*create_graph=*/true)[0];
  return torch::autograd::grad({gradient}, {x}, {v})[0];
}

void hessian_products(const Options& options, const OnRow& on_row) {
  const int64_t width = options.quick ? 32 : 1024;
  Function network = mlp(3, width);
  Function f = [&](const Tensor& x) { return network(x).square().sum(); };
  Tensor x = at::randn({64, width}), v = at::randn({64, width});
  TORCH_CHECK(at::allclose(fwd::hvp(f, x, v).product, hvp_by_double_backward(f, x, v), 1e-3, 1e-4));
  const std::string name = "hvp of a 3x" + std::to_string(width) + " MLP";
  auto row_against = [&](const char* other_name, const Call& other) {
    nlohmann::json row = compare(
        options, name, "forward over reverse", [&] { fwd::hvp(f, x, v); }, other_name, other);
    row["goal"] = "ratio <= 0.90";
    on_row(row);
  };
  row_against("reverse over reverse", [&] { fwd::hvp(f, x, v, fwd::HvpMode::kReverseOverReverse); });
  row_against("double backward by hand", [&] { hvp_by_double_backward(f, x, v); });
}

// u_xx of a network of a differential equation, as double backward gives it: differentiable once more.
Tensor second_by_double_backward(const Function& f, const Tensor& point) {
  Tensor x = point.detach().set_requires_grad(true);
  auto slope = [&](const Tensor& of) {
    return torch::autograd::grad({of.sum()}, {x}, {}, true, /*create_graph=*/true)[0];
  };
  return slope(slope(f(x)));
}

// One direction of the second derivative, and the training step around it.
void second_derivatives(const Options& options, const OnRow& on_row) {
  const int64_t batch = options.quick ? 8 : 256;
  std::vector<Tensor> weights;
  for (int64_t i = 0; i < 5; ++i) {
    const int64_t in = i == 0 ? 1 : 64, out = i == 4 ? 1 : 64;
    weights.push_back((at::randn({out, in}) / std::sqrt(static_cast<double>(in))).requires_grad_());
  }
  Function f = [&](const Tensor& x) {
    Tensor y = x;
    for (size_t i = 0; i + 1 < weights.size(); ++i) y = at::linear(y, weights[i]).tanh();
    return at::linear(y, weights.back());
  };
  Tensor x = at::randn({batch, 1}), v = at::ones({batch, 1});
  auto one_run = [&] { return fwd::second_derivative(f, x, v).second; };
  auto nested = [&] { return slope_by_driver([&](const Tensor& t) { return slope_by_driver(f, t); }, x); };
  auto reverse = [&] { return second_by_double_backward(f, x); };
  TORCH_CHECK(fwd::second_derivative(f, x, v).nested_because.empty());
  TORCH_CHECK(at::allclose(one_run(), reverse(), 1e-3, 1e-5));
  auto step_of = [&](auto second) {
    return [&weights, second] { torch::autograd::grad({second().square().mean()}, weights); };
  };
  auto row = [&](const char* name, const char* ours_name, const Call& ours, const Call& other,
                 const char* goal) {
    nlohmann::json made = compare(options, name, ours_name, ours, "double backward", other);
    if (goal != nullptr) made["goal"] = goal;
    on_row(made);
  };
  row("u_xx of a 4x64 tanh net", "second_derivative", one_run, reverse, "ratio <= 0.80");
  row("u_xx of a 4x64 tanh net", "jvp nested", nested, reverse, nullptr);
  row("training step on u_xx", "second_derivative", step_of(one_run), step_of(reverse), nullptr);
}

void jacobians(const Options& options, const OnRow& on_row) {
  const int64_t width = options.quick ? 16 : 256;
  Function f = mlp(3, width);
  Tensor x = at::randn({width});
  auto loop = [&] {
    Tensor leaf = x.detach().set_requires_grad(true);
    Tensor y = f(leaf);
    std::vector<Tensor> rows;
    for (int64_t i = 0; i < width; ++i) rows.push_back(torch::autograd::grad({y[i]}, {leaf}, {}, true)[0]);
    return at::stack(rows);
  };
  fwd::JacobianOptions chunks{.chunk_size = width / 4};
  TORCH_CHECK(at::allclose(fwd::jacrev(f, x, chunks), loop(), 1e-3, 1e-4));
  TORCH_CHECK(at::allclose(fwd::jacfwd(f, x, chunks), loop(), 1e-3, 1e-4));
  const std::string name = "Jacobian " + std::to_string(width) + " -> " + std::to_string(width) + ", chunk " +
                           std::to_string(width / 4);
  auto row_for = [&](const char* ours_name, const Call& ours) {
    nlohmann::json row = compare(options, name, ours_name, ours, "loop of vjps", loop);
    row["goal"] = "ratio <= 0.25";
    on_row(row);
  };
  row_for("jacrev", [&] { fwd::jacrev(f, x, chunks); });
  row_for("jacfwd", [&] { fwd::jacfwd(f, x, chunks); });
}

// A tangent lives as long as its tensor, so a chain needs what one of its links needs.
void memory_of_a_chain(const Options& options, const OnRow& on_row) {
  Tensor x = at::randn({1024}), v = at::randn({1024});
  auto peak = [&](int64_t depth) {
    auto chain = [&](const Tensor& start) {
      Tensor y = start;
      for (int64_t i = 0; i < depth; ++i) y = y.sin();
      return y;
    };
    return TensorBytes::peak_of([&] { fwd::jvp(chain, x, v); });
  };
  const int64_t depth = options.quick ? 1000 : 10'000;
  int64_t shallow = peak(10), deep = peak(depth);
  on_row({{"name", "peak memory of jvp"},
          {"ours", "chain of " + std::to_string(depth)},
          {"other", "chain of 10"},
          {"ours_bytes", deep},
          {"other_bytes", shallow},
          {"ratio", static_cast<double>(deep) / static_cast<double>(shallow)},
          {"goal", "ratio = 1"}});
}

void forward_ad_bench(const Options& options, const OnRow& on_row) {
  torch::manual_seed(0);
  orders(options, on_row);
  jvp_of_a_small_network(options, on_row);
  hessian_products(options, on_row);
  second_derivatives(options, on_row);
  jacobians(options, on_row);
  memory_of_a_chain(options, on_row);
}

std::string forward_ad_row(const nlohmann::json& row) {
  static const TextTable table(
      {{"", -32}, {"ours:", -22}, {"other:", -24}, {"", 10}, {"", 11}, {"  ratio", 0}});
  const bool timed = row.contains("ours_us");
  return table.row({row["name"], row["ours"], row["other"],
                    timed ? cell(row, "ours_us", "%.1f") : cell(row, "ours_bytes", "%.0f B"),
                    timed ? cell(row, "other_us", "%.1f") : cell(row, "other_bytes", "%.0f B"),
                    "  " + (timed ? ratio_of(row) : cell(row, "ratio"))});
}

}  // namespace

Benchmark forward_ad_benchmark() {
  return {.name = "forward_ad",
          .what = "Time forward mode's drivers beside the other ways to the same numbers.",
          .lists = {{.text = forward_ad_row}},
          .measure = measured_by(forward_ad_bench),
          .takes_threads = true};
}

}  // namespace overdrive::bench
