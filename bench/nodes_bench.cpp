// Question: what does each type of native node gain beside its own apply()? A chain of one operator, its
// backward on stock, on Overdrive without native nodes, and with them, in turns in one process. Runs on the
// calling thread.
#include "bench/benchmark.h"
#include "bench/statistics.h"
#include "engine/engine.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

namespace overdrive::bench {
namespace {

using at::Tensor;

// One link of a chain: from a square matrix of n rows to another. `w` is such a matrix, too.
struct Link {
  const char* type;
  const char* text;
  Tensor (*run)(const Tensor& t, const Tensor& w, int64_t n);
};

#define LINK(type, ...)                                                             \
  Link {                                                                            \
    type, #__VA_ARGS__, [](const Tensor& t, const Tensor& w, int64_t n) -> Tensor { \
      (void)w, (void)n;                                                             \
      return __VA_ARGS__;                                                           \
    }                                                                               \
  }

const std::vector<Link>& links() {
  static const auto* all = new std::vector<Link>{
      LINK("AddBackward0", t + w),
      LINK("AddBackward1", t + 1),
      LINK("SubBackward0", w - t),
      LINK("SubBackward1", t - 1),
      LINK("NegBackward0", -t),
      LINK("MulBackward0", t * w),
      LINK("MulBackward1", t * 1.0001),
      LINK("DivBackward0", t / w),
      LINK("DivBackward1", t / 1.0001),
      LINK("ReluBackward0", at::relu(t)),
      LINK("SigmoidBackward0", at::sigmoid(t)),
      LINK("TanhBackward0", at::tanh(t)),
      LINK("ExpBackward0", at::exp(-t.detach() + t)),
      LINK("LogBackward0", at::log(t.abs().detach() + 1 + t * 0)),
      LINK("SqrtBackward0", at::sqrt(t.abs().detach() + 1 + t * 0)),
      LINK("PowBackward0", at::pow(t, 2)),
      LINK("CloneBackward0", t.clone()),
      LINK("MmBackward0", at::mm(t, w)),
      LINK("AddmmBackward0", at::addmm(w, t, w)),
      LINK("BmmBackward0", at::bmm(t.unsqueeze(0), w.unsqueeze(0)).squeeze(0)),
      LINK("TBackward0", t.t()),
      LINK("TransposeBackward0", t.transpose(0, 1)),
      LINK("PermuteBackward0", t.permute({1, 0})),
      LINK("ViewBackward0", t.view({n, n})),
      LINK("UnsafeViewBackward0", at::_unsafe_view(t, {n, n})),
      LINK("ReshapeAliasBackward0", at::_reshape_alias(t, {n, n}, {n, 1})),
      LINK("SqueezeBackward0", t.squeeze()),
      LINK("SqueezeBackward1", t.unsqueeze(0).squeeze(0)),
      LINK("UnsqueezeBackward0", t.unsqueeze(0).squeeze(0)),
      LINK("ExpandBackward0", t.expand({n, n})),
      LINK("SumBackward0", t.sum().expand({n, n})),
      LINK("SumBackward1", t.sum(0, true).expand({n, n})),
      LINK("MeanBackward0", t.mean().expand({n, n})),
      LINK("MeanBackward1", t.mean(0, true).expand({n, n})),
      LINK("MseLossBackward0", at::mse_loss(t, w).expand({n, n})),
      LINK("SelectBackward0", t.select(0, 0).expand({n, n})),
      LINK("SliceBackward0", t.slice(0, 0, 1).expand({n, n})),
      LINK("SplitBackward0", at::cat(t.split(n / 2, 1), 1)),
      LINK("SplitWithSizesBackward0", at::cat(t.split_with_sizes({1, n - 1}, 1), 1)),
      LINK("UnbindBackward0", at::stack(t.unbind(0), 0)),
      LINK("CatBackward0", at::cat(t.split(n / 2, 1), 1)),
      LINK("StackBackward0", at::stack(t.unbind(0), 0)),
      LINK("GeluBackward0", at::gelu(t)),
      LINK("SiluBackward0", at::silu(t)),
      LINK("LeakyReluBackward0", at::leaky_relu(t)),
      LINK("SoftplusBackward0", at::softplus(t)),
      LINK("EluBackward0", at::elu(t)),
      LINK("SoftmaxBackward0", at::softmax(t, 1)),
      LINK("LogSoftmaxBackward0", at::log_softmax(t, 1)),
      LINK("NllLossBackward0", at::nll_loss(t, at::zeros({n}, at::kLong)).expand({n, n})),
      LINK("NativeLayerNormBackward0", at::layer_norm(t, {n})),
      LINK("NativeBatchNormBackward0", at::batch_norm(t, {}, {}, {}, {}, true, 0.1, 1e-5, false)),
      LINK("ConvolutionBackward0", at::conv2d(t.view({1, 1, n, n}), at::ones({1, 1, 1, 1})).view({n, n})),
      LINK("MaxPool2DWithIndicesBackward0",
           std::get<0>(at::max_pool2d_with_indices(t.view({1, 1, n, n}), 1)).view({n, n})),
      LINK("AvgPool2DBackward0", at::avg_pool2d(t.view({1, 1, n, n}), 1).view({n, n})),
      LINK("WhereBackward0", at::where(w > 0, t, w)),
      LINK("EmbeddingBackward0", at::embedding(t, at::arange(n))),
      LINK("torch::autograd::AccumulateGrad", t + at::ones({n, n}).set_requires_grad(true)),
  };
  return *all;
}
#undef LINK

double thread_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

class Chain {
 public:
  Chain(const Link& link, int64_t n) : x_(at::full({n, n}, 0.5)) {
    const Tensor w = at::full({n, n}, 0.7);
    x_.set_requires_grad(true);
    Tensor t = x_;
    for (int i = 0; i < kLinks; ++i) t = link.run(t, w, n);
    roots_ = {torch::autograd::impl::gradient_edge(t)};
    gradients_ = {at::ones_like(t)};
  }

  // Of one link's backward.
  double time() {
    x_.mutable_grad().reset();
    const double begin = thread_ns();
    torch::autograd::Engine::get_default_engine().execute(roots_, gradients_, /*keep_graph=*/true,
                                                          /*create_graph=*/false, /*accumulate_grad=*/true, {});
    return (thread_ns() - begin) / kLinks;
  }

 private:
  static constexpr int kLinks = 50;
  Tensor x_;
  torch::autograd::edge_list roots_;
  torch::autograd::variable_list gradients_;
};

double ours(Chain& chain, bool own_nodes) {
  engine::Options options = engine::Options::from_environment();
  options.own_nodes = own_nodes;
  const engine::ScopedInstall installed(options);
  chain.time();
  return chain.time();
}

nlohmann::json measure(const Link& link, int64_t n, int rounds) {
  Chain chain(link, n);
  std::vector<double> stock, apply, own;
  for (int round = 0; round < rounds; ++round) {
    chain.time();
    stock.push_back(chain.time());
    apply.push_back(ours(chain, false));
    own.push_back(ours(chain, true));
  }
  const double stock_ns = median(stock), apply_ns = median(apply), own_ns = median(own);
  return {{"type", link.type},
          {"link", link.text},
          {"elements", n * n},
          {"stock_ns", stock_ns},
          {"apply_ns", apply_ns},
          {"own_ns", own_ns},
          {"of_stock", own_ns / stock_ns},
          {"of_apply", own_ns / apply_ns}};
}

// A row for each type and size: stock_ns, apply_ns, own_ns (a link's backward), of_stock, of_apply.
void nodes_bench(const Options& options, const OnRow& on_row) {
  for (const Link& link : links()) {
    const auto& types = options.types;
    if (!types.empty() && std::find(types.begin(), types.end(), link.type) == types.end()) continue;
    if (options.quick && types.empty() && &link != &links().front()) return;
    for (const int64_t n : {4, 64}) on_row(measure(link, n, options.quick ? 3 : options.rounds));
  }
}

std::vector<std::string> types_of_links() {
  std::vector<std::string> types;
  for (const Link& link : links()) types.emplace_back(link.type);
  return types;
}

const TextTable& nodes_table() {
  static const TextTable table({{"type", -26},
                                {"elements", 8},
                                {"stock ns", 9},
                                {"apply ns", 9},
                                {"own ns", 9},
                                {"of stock", 9},
                                {"of apply", 9}});
  return table;
}

std::string nodes_row(const nlohmann::json& row) {
  return nodes_table().row({row["type"], std::to_string(row["elements"].get<int64_t>()),
                            cell(row, "stock_ns", "%.0f"), cell(row, "apply_ns", "%.0f"),
                            cell(row, "own_ns", "%.0f"), cell(row, "of_stock"), cell(row, "of_apply")});
}

}  // namespace

Benchmark nodes_benchmark() {
  return {.name = "nodes",
          .what = "Time each type of node that the engine runs itself beside its own apply().",
          .lists = {{.head = nodes_table().head(), .text = nodes_row}},
          .measure = measured_by(nodes_bench),
          .types = types_of_links(),
          .rounds = "--rounds"};
}

}  // namespace overdrive::bench
