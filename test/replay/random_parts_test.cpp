// Random programs around two captured parts: equal bits or refused, never different. A seed names the function
// of each part (layers with state, in-place operators, views, several inputs and outputs, weights of both) and
// the program around them: calls in flight, kept graphs, orders of backwards, gradients of odd strides,
// gradients that the function or the program takes away and replaces, changes between a forward and its
// backward, hooks, threads, modes. OVERDRIVE_CAPTURE_FUZZ=first:count runs others than the few that every run
// of the suite tries.
#include "test/replay/parts_fixture.h"
#include "test/support/engines.h"

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdlib>
#include <iostream>
#include <iterator>
#include <limits>
#include <random>
#include <set>
#include <sstream>
#include <thread>

namespace overdrive::test {
namespace random_parts {

using namespace torch::nn;

const bool kDebug = std::getenv("OVERDRIVE_FUZZ_EXPLAIN") && *std::getenv("OVERDRIVE_FUZZ_EXPLAIN");
// All programs without the passes; a fourth of them is always.
const bool kPlain = std::getenv("OVERDRIVE_FUZZ_PLAIN") != nullptr;

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed * 6364136223846793005ULL + 1442695040888963407ULL) {}
  int below(int n) { return static_cast<int>((random_() >> 11) % static_cast<uint64_t>(n)); }
  bool one_in(int n) { return below(n) == 0; }

 private:
  std::mt19937_64 random_;
};

struct Instruction {
  int kind;
  int a;
  int b;
  double number;
};

// What a part computes: a list of instructions over a pool of matrices of one shape, which its inputs begin.
struct Recipe {
  std::vector<Instruction> instructions;
  // Of the pool, and how each is made an output.
  std::vector<std::pair<int, int>> outputs;
  bool calls_other = false;
  // What is made a second time: nothing, something for a sum with the first, or something that nobody reads.
  int repeats;

  static constexpr int kKinds = 56;

  // `rare`: also what a part refuses.
  Recipe(Dice& dice, bool rare) {
    const int count = 2 + dice.below(9);
    for (int i = 0; i < count; ++i) {
      instructions.push_back({dice.below(rare ? kKinds : kKinds - 8), dice.below(1000), dice.below(1000),
                              0.25 + 0.5 * (dice.below(7) - 3)});
    }
    const int results = dice.one_in(2) ? 1 : 1 + dice.below(3);
    for (int i = 0; i < results; ++i) outputs.emplace_back(dice.below(1000), dice.below(9));
    repeats = dice.below(3);
  }
};

// Everything that one of the two programs has. Made twice from one seed.
struct World {
  int rows;
  int columns;
  std::shared_ptr<ModuleListImpl> model = std::make_shared<ModuleListImpl>();
  Tensors leaves;
  Tensors buffers;
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  std::array<PartFunction, 2> function;
  // The same, captured in one of the two worlds.
  std::array<PartFunction, 2> part;
  std::array<std::unique_ptr<CapturedStep>, 2> captured;
  // A whole step around the first part.
  std::unique_ptr<CapturedStep> step;
  std::string log;
  std::string hooks;
  // Whether a backward that a part cannot do said so, which ends the program.
  bool told = false;
  bool had_thread = false;
  Tensors kept;
  at::Tensor generator;

  template <typename Layer>
  Layer& layer(int index) {
    return model->at<Layer>(index);
  }
};

enum Layers : uint8_t {
  kLinear,
  kOtherLinear,
  kNorm,
  kLayerNorm,
  kDropout,
  kGru,
  kLstm,
  kEmbedding,
  kConv,
  kRnn
};

at::Tensor apply(World& w, const Instruction& each, const Tensors& pool, const Tensors& inputs) {
  const auto pick = [&](int index) { return pool[index % pool.size()]; };
  const at::Tensor a = pick(each.a), b = pick(each.b), leaf = w.leaves[each.b % 2],
                   kept = w.buffers[each.b % 2];
  const int64_t rows = a.size(0);
  const auto same_rows = [&](const at::Tensor& all) { return all.narrow(0, 0, rows); };
  switch (each.kind) {
    case 0:
      return w.layer<LinearImpl>(kLinear).forward(a);
    case 1:
      return w.layer<LinearImpl>(kOtherLinear).forward(a).tanh();
    case 2:
      return rows > 1 ? w.layer<BatchNorm1dImpl>(kNorm).forward(a) : a * 2;
    case 3:
      return w.layer<LayerNormImpl>(kLayerNorm).forward(a);
    case 4:
      return w.layer<DropoutImpl>(kDropout).forward(a) + b;
    case 5:
      return w.layer<GRUCellImpl>(kGru).forward(a, b);
    case 6: {
      const auto [h, c] = w.layer<LSTMCellImpl>(kLstm).forward(a, std::make_tuple(b, a));
      return h * each.number + c;
    }
    case 7:
      return w.layer<EmbeddingImpl>(kEmbedding).forward(inputs[2]) + a;
    case 8:
      return w.layer<Conv1dImpl>(kConv).forward(a.unsqueeze(1)).squeeze(1);
    case 9:
      return std::get<0>(w.layer<LSTMImpl>(kRnn).forward(a.unsqueeze(0))).squeeze(0) + b;
    case 10:
      return torch::linear(a, w.layer<LinearImpl>(kLinear).weight.t(), w.layer<LinearImpl>(kOtherLinear).bias);
    case 11:
      return torch::linear(w.layer<LinearImpl>(kLinear).forward(a).relu(), w.layer<LinearImpl>(kLinear).weight);
    case 12:
      return a * same_rows(leaf);
    case 13:
      return a + same_rows(leaf) * same_rows(leaf);
    case 14: {
      const torch::NoGradGuard no_grad;
      kept.mul_(0.5).narrow(0, 0, rows).add_(a, each.number * 0.1);
      return a * 0.5;
    }
    case 15:
      return a * same_rows(kept).clone();
    case 16:
      return (a * each.number).relu_();
    case 17: {
      at::Tensor copy = a.clone();
      copy.select(0, 0).add_(b.select(0, rows - 1));
      return copy;
    }
    case 18: {
      at::Tensor copy = a * 1;
      const at::Tensor view = copy.t();
      copy.mul_(each.number);
      return view.t() + view.t() * b;
    }
    case 19: {
      at::Tensor copy = a * 1;
      copy.t().narrow(0, 0, 1).sigmoid_();
      return copy * b + copy;
    }
    case 20:
      return a + b;
    case 21:
      return a * b;
    case 22:
      return a - each.number * b;
    case 23:
      return torch::tanh(a);
    case 24:
      return torch::softmax(a, each.b % 2);
    case 25:
      return torch::log_softmax(a, 1) * 0.1;
    case 26:
      return a.mm(b.t()).mm(a) * 0.1;
    case 27:
      return torch::where(a > b, a, b * each.number);
    case 28:
      return torch::cat({a, b}, 1).narrow(1, w.columns / 2, w.columns);
    case 29:
      return a.sum(0, true).expand_as(a) * 0.3;
    case 30:
      return a.mean(1, true) + b;
    case 31:
      return a.t().contiguous().t() * b;
    case 32:
      return a.index_select(0, inputs[2].remainder(rows));
    case 33:
      return a * torch::rand_like(b.detach());
    case 34:
      return torch::gelu(a) + b.detach();
    case 35:
      return a.exp().clamp_max(3);
    case 36:
      return a.cumsum(0) * 0.5;
    case 37:
      return std::get<0>(a.sort(1)) + b;
    case 38:
      return a.flatten().roll(1).reshape(a.sizes());
    case 39:
      return a.masked_fill(b.detach() > 0, each.number);
    case 40:
      return torch::stack({a, b}, 2).select(2, each.b % 2);
    case 41:
      return a / (a.norm() + 1);
    case 42:
      return torch::max(a, b).logsumexp(1, true).expand_as(a) * 0.2;
    case 43:
      return a.index_put({b.detach() > each.number}, torch::full({}, each.number));
    case 44:
      return a.chunk(2, 1)[0].sum(1, true) * b;
    case 45:
      return a.unbind(0)[0].unsqueeze(0).expand_as(a) + b;
    case 46: {
      const at::Tensor x = a.detach().requires_grad_();
      const at::AutoGradMode with_graph(true);
      return torch::autograd::grad({(x.tanh() * same_rows(leaf)).sum()}, {x}, {}, true, each.b % 2 == 0)[0] + a;
    }
    case 47:
      return a.pow(2).add(1).sqrt() - torch::elu(b);
    // Rare ones from here on.
    case 48: {
      const at::AutoGradMode with_graph(true);
      return a * same_rows(leaf);
    }
    case 49: {
      const at::Tensor x = a.detach().requires_grad_();
      return x * same_rows(leaf) + a;
    }
    case 50: {
      at::Tensor y = a.exp();
      const at::Tensor z = y.sum();
      y.mul_(each.b % 3 == 0 ? 2 : 1);
      return a + z * 0;
    }
    case 51: {
      const at::Tensor y = a * 2;
      if (each.b % 3 == 0 && y.requires_grad()) y.register_hook([](const at::Tensor& g) { return g * 2; });
      return y;
    }
    case 52:
      return a.sum().item<float>() > 0 ? a * 2 : a * 3;
    case 54:
      return a.isfinite().all().item<bool>() ? a * 1.5 : b;
    case 55:
      return a + b.masked_select(a.detach() > -50).sum() * 0.1;
    default:
      return a;
  }
}

Tensors run(World& w, const Recipe& recipe, const Tensors& inputs, const PartFunction& other) {
  Tensors pool{inputs[0], inputs[1]};
  if (recipe.calls_other) pool.push_back(other(inputs)[0].reshape({-1}).narrow(0, 0, 1) * inputs[0]);
  for (const Instruction& each : recipe.instructions) {
    const at::Tensor made = apply(w, each, pool, inputs);
    const bool again = recipe.repeats > 0 && each.a % 3 == 0;
    const at::Tensor second = again ? apply(w, each, pool, inputs) : made;
    pool.push_back(recipe.repeats == 1 && again ? made + second * 0.5 : made);
  }
  Tensors outputs;
  for (size_t i = 0; i < recipe.outputs.size(); ++i) {
    const auto [index, form] = recipe.outputs[i];
    const at::Tensor from = i == 0 ? pool.back() : pool[index % pool.size()];
    switch (form) {
      case 0:
        outputs.push_back(from.sum());
        break;
      case 1:
        outputs.push_back((from * 2).t());
        break;
      case 2:
        outputs.push_back(from.tanh());
        break;
      case 3:
        outputs.push_back((from + 1).narrow(1, 0, 1));
        break;
      case 4:
        if (i > 0) {
          outputs.push_back(from.detach().argmax(1));
          break;
        }
        [[fallthrough]];
      case 5:
        if (i > 0) {
          outputs.push_back(from.detach() * 3);
          break;
        }
        [[fallthrough]];
      case 6:
        outputs.push_back((from * 0.5).sigmoid_().mul(2));
        break;
      case 7:
        outputs.push_back(from.sum(1, true).expand(from.sizes()));
        break;
      default:
        outputs.push_back(from * 1);
    }
  }
  return outputs;
}

// What a function does with gradients that it has not made. Parameters that it may not use, too.
void take_gradients(World& w, int kind) {
  switch (kind) {
    case 1:
      return w.model->zero_grad();
    case 2:
      return w.layer<LinearImpl>(kOtherLinear).weight.mutable_grad().reset();
    case 3:
      return w.layer<LSTMImpl>(kRnn).zero_grad();
    case 4:
      return w.model->zero_grad(false);
    case 5:
      w.layer<LinearImpl>(kLinear).bias.mutable_grad().reset();
      return w.layer<GRUCellImpl>(kGru).zero_grad(false);
    default:
      return;
  }
}

// A program: what each of its steps does is drawn from a few habits, so that calls become replays, and now and
// then from everything.
struct Program {
  uint64_t seed;
  int rows;
  int columns;
  int optimizer;
  bool overdrive;
  bool nested;
  bool with_step;
  uint64_t check_every;
  int calls;
  int backward;
  int loss;
  bool chained;
  bool input_requires_grad;
  bool both_parts;
  bool hooks;
  int wild;
  std::vector<Recipe> recipes;
  // Whether the losses of the calls, and which outputs they use, take turns.
  bool turns;
  // What each part does with gradients, and how often the program around does something, of 8 steps.
  std::array<int, 2> takes{};
  int gives;

  explicit Program(uint64_t number) : seed(number) {
    Dice dice(number);
    rows = 1 + dice.below(4);
    columns = 2 + dice.below(6);
    optimizer = dice.below(3);
    overdrive = dice.one_in(2);
    nested = dice.one_in(6);
    with_step = dice.one_in(5);
    check_every = dice.one_in(6) ? 1 + dice.below(4) : 0;
    calls = 1 + (dice.one_in(2) ? 0 : dice.below(4));
    backward = dice.below(8);
    loss = dice.below(8);
    chained = dice.one_in(4);
    input_requires_grad = dice.one_in(2);
    both_parts = dice.one_in(2);
    hooks = dice.one_in(4);
    wild = dice.one_in(3) ? 3 : 8;
    const bool rare = dice.one_in(4);
    for (int i = 0; i < 2; ++i) recipes.emplace_back(dice, rare);
    recipes[1].calls_other = nested;
    turns = dice.one_in(3);
    for (int& take : takes) take = dice.one_in(3) ? 1 + dice.below(6) : 0;
    gives = dice.one_in(2) ? 0 : 1 + dice.below(8);
  }
};

std::unique_ptr<World> made(const Program& program, bool captured, bool passes) {
  torch::manual_seed(11);
  auto world = std::make_unique<World>();
  World& w = *world;
  w.rows = program.rows;
  w.columns = program.columns;
  const int64_t c = w.columns;
  for (const auto& layer : {Linear(c, c).ptr()}) w.model->push_back(layer);
  w.model->push_back(Linear(c, c));
  w.model->push_back(BatchNorm1d(c));
  w.model->push_back(LayerNorm(LayerNormOptions({c})));
  w.model->push_back(Dropout(0.3));
  w.model->push_back(GRUCell(c, c));
  w.model->push_back(LSTMCell(c, c));
  w.model->push_back(Embedding(8, c));
  w.model->push_back(Conv1d(Conv1dOptions(1, 1, 3).padding(1)));
  w.model->push_back(LSTM(LSTMOptions(c, c)));
  for (int i = 0; i < 2; ++i) {
    w.leaves.push_back(torch::randn({5, c}).requires_grad_());
    w.buffers.push_back(torch::randn({5, c}));
  }
  Tensors all = w.model->parameters();
  all.insert(all.end(), w.leaves.begin(), w.leaves.end());
  w.optimizer = program.optimizer == 0 ? sgd(0.01)(all) : program.optimizer == 1 ? adam()(all) : nullptr;
  if (!w.optimizer)
    w.optimizer = std::make_shared<torch::optim::SGD>(all, torch::optim::SGDOptions(0.01).momentum(0.9));
  for (int i = 0; i < 2; ++i) {
    w.function[i] = [&w, &program, i](const Tensors& inputs) {
      take_gradients(w, program.takes[i]);
      Tensors outputs = run(w, program.recipes[i], inputs, w.part[0]);
      if (program.takes[i] == 6) w.model->zero_grad();
      return outputs;
    };
    if (captured) {
      w.captured[i] = std::make_unique<CapturedStep>(w.function[i],
                                                     CaptureOptions{.modules = {w.model},
                                                                    .constant_numbers = true,
                                                                    .check_every = program.check_every,
                                                                    .passes = passes},
                                                     true);
    }
    w.part[i] = [&w, i](const Tensors& inputs) {
      return w.captured[i] ? w.captured[i]->call(inputs) : w.function[i](inputs);
    };
  }
  w.generator = at::detail::getDefaultCPUGenerator().get_state();
  return world;
}

// A stride of one element means nothing, and depends on whether a leaf could keep the gradient that arrived.
std::vector<int64_t> strides_of(const at::Tensor& tensor) {
  std::vector<int64_t> strides = tensor.strides().vec();
  for (size_t i = 0; i < strides.size(); ++i) {
    if (tensor.size(static_cast<int64_t>(i)) == 1) strides[i] = 0;
  }
  return strides;
}

std::string plain(std::string error) {
  for (const char* known : {"modified by an inplace operation", "a second time", "does not require grad"}) {
    if (error.find(known) != std::string::npos) return known;
  }
  return error.substr(0, error.find('\n'));
}

// A gradient for the tensor, with strides or numbers of a kind.
at::Tensor gradient_for(const at::Tensor& y, int kind, int i) {
  const at::Tensor plain = batch_of(i, y.sizes(), {1})[0];
  switch (kind) {
    case 0:
      return torch::ones({}).expand(y.sizes());
    case 1:
      return y.dim() == 2 ? plain.t().contiguous().t() : plain;
    case 2:
      return y.dim() == 2 ? torch::cat({plain, plain}, 1).narrow(1, 1, y.size(1)) : plain;
    case 3:
      return plain / (plain - plain.flatten()[0]);
    case 4:
      return y.dim() == 2 ? plain.narrow(1, 0, 1).expand(y.sizes()) : plain;
    default:
      return plain;
  }
}

// One step of the program in one world. Returns what is compared; `close`: within a rounding alone.
struct Stepped {
  Tensors exact;
  Tensors close;
  bool failed = false;
  // Nodes that a captured part makes for it have other numbers than eager's.
  bool has_second_derivatives = false;
};

class Step {
 public:
  Step(const Program& program, World& w, int number)
      : program_(program), w_(w), dice_(program.seed * 131 + number), i_(number) {
    wild_ = number > 3 && dice_.one_in(program.wild);
  }

  Stepped run() {
    before();
    try_to([&] { forwards(); });
    try_to([&] { between(); });
    if (dice_.below(16) < program_.gives) give_gradients();
    backwards();
    after();
    return std::move(result_);
  }

 private:
  int habit(int usual, int n) { return wild_ && dice_.one_in(2) ? dice_.below(n) : usual; }
  bool now_and_then(int n) { return wild_ && dice_.one_in(n); }

  // An error is logged, and the rest of the step goes on.
  template <typename Action>
  void try_to(Action action) {
    std::string error;
    try {
      action();
      return;
    } catch (const c10::Error& thrown) {
      error = thrown.msg();
      for (const char* text : {"once more", "Calls run eagerly from now on"})
        w_.told = w_.told || std::string(thrown.what()).find(text) != std::string::npos;
    }
    if (kDebug) std::cerr << "  step " << i_ << ": " << error.substr(0, 300) << "\n";
    w_.log += plain(error) + "\n";
    result_.failed = true;
  }

  void before() {
    const bool zeroes = !now_and_then(3), to_none = !now_and_then(4);
    if (zeroes) w_.optimizer->zero_grad(to_none);
    if (kDebug)
      std::cerr << "  step " << i_ << ": "
                << (!zeroes   ? "keeps"
                    : to_none ? "takes"
                              : "zeroes")
                << " gradients\n";
    if (now_and_then(5)) w_.model->train(!w_.model->is_training());
    if (now_and_then(8)) w_.layer<DropoutImpl>(kDropout).eval();
    if (now_and_then(6)) {
      const at::Tensor leaf = parameters()[dice_.below(static_cast<int>(parameters().size()))];
      leaf.requires_grad_(!leaf.requires_grad());
    }
    if (now_and_then(8)) {
      at::Tensor weight = w_.layer<LinearImpl>(kLinear).weight;
      weight.set_data(weight.detach() * 0.5);
    }
    if (now_and_then(6)) {
      const torch::NoGradGuard no_grad;
      w_.layer<LinearImpl>(kOtherLinear).weight.copy_(batch_of(i_, {w_.columns, w_.columns}, {1})[0]);
    }
    if (dice_.below(8) < program_.gives) give_gradients();
    const bool hooks = dice_.one_in(2);
    if (program_.hooks && i_ == (program_.seed % 2 ? 0 : 9)) add_hooks();
    if (now_and_then(10) && hooks) add_hooks();
    if (now_and_then(12)) {
      for (auto& part : w_.captured) part ? part->reset() : void();
    }
  }

  // Some are taken away, some are others, with other strides now and then; most stay.
  void give_gradients() {
    for (const at::Tensor& each : parameters()) {
      const int kind = dice_.below(8);
      if (kDebug && kind < 4) std::cerr << " g" << kind;
      if (kind == 0) each.mutable_grad().reset();
      if (kind == 1) each.mutable_grad() = batch_of(i_, each.sizes(), {1})[0].clone();
      if (kind == 2 && each.dim() == 2)
        each.mutable_grad() = batch_of(i_, {each.size(1), each.size(0)}, {1})[0].t().clone();
      if (kind == 3 && each.grad().defined()) each.mutable_grad() = each.grad().clone();
    }
  }

  // The host promises no order among the leaves of one node.
  bool has_a_node_with_others(const at::Tensor& leaf) {
    Tensors all = w_.layer<LSTMImpl>(kRnn).parameters();
    all.push_back(w_.layer<LayerNormImpl>(kLayerNorm).bias);
    all.push_back(w_.layer<BatchNorm1dImpl>(kNorm).bias);
    all.push_back(w_.layer<Conv1dImpl>(kConv).bias);
    return std::any_of(all.begin(), all.end(), [&](const at::Tensor& each) { return each.is_same(leaf); });
  }

  void add_hooks() {
    const Tensors all = parameters();
    for (size_t k = 0; k < all.size(); ++k) {
      if (!all[k].requires_grad() || has_a_node_with_others(all[k])) continue;
      all[k].register_hook([log = &w_.hooks, k](const at::Tensor& gradient) {
        *log += c10::str("h", k, at::IntArrayRef(strides_of(gradient)), " ");
      });
    }
  }

  Tensors parameters() const {
    Tensors all = w_.model->parameters();
    all.insert(all.end(), w_.leaves.begin(), w_.leaves.end());
    return all;
  }

  Tensors inputs(int call) {
    int64_t rows = w_.rows;
    if (now_and_then(6)) rows = 1 + dice_.below(4);
    Tensors in = batch_of(8 * i_ + call, {rows, w_.columns}, {rows, w_.columns});
    if (now_and_then(8)) in[0] = in[0].t().contiguous().t();
    in.push_back(torch::arange(rows).add(i_).remainder(8));
    const int kind = habit(program_.input_requires_grad ? 1 : 0, 3);
    if (kind > 0) {
      in[0].requires_grad_();
      leaves_.push_back(in[0]);
    }
    if (kind == 2) in[0] = in[0] * w_.leaves[0].sum();
    if (now_and_then(10)) in[1] = in[0];
    if (program_.chained && !previous_.empty() && previous_[0].sizes() == in[1].sizes()) in[1] = previous_[0];
    return in;
  }

  void forwards() {
    const int calls = habit(program_.calls, 5) + (wild_ ? 1 : 0);
    for (int call = 0; call < std::max(calls, 1); ++call) {
      const int which = program_.both_parts ? (call + i_ * 0) % 2 : program_.nested ? 1 : 0;
      Tensors in = inputs(call);
      Tensors out;
      const auto action = [&] { out = w_.part[now_and_then(5) ? 1 - which : which](in); };
      // A backward has eager's order among nodes of one thread alone, or where no graph leads from one call's
      // into another's.
      if (now_and_then(8) && !program_.chained && !std::exchange(w_.had_thread, true)) {
        on_thread(action);
      } else {
        action();
      }
      if (now_and_then(6)) {
        const torch::NoGradGuard no_grad;
        for (const at::Tensor& each : w_.part[which](in)) note(each);
      }
      for (const at::Tensor& each : out) note(each);
      previous_ = out;
      all_.push_back(out);
      inputs_.push_back(in);
    }
  }

  // A new thread has a generator, modes and numbers of nodes of its own, and the work is done when it is
  // joined.
  template <typename Action>
  void on_thread(const Action& action) {
    if (kDebug) std::cerr << "  step " << i_ << ": on a thread\n";
    std::exception_ptr error;
    std::thread([&] {
      try {
        action();
      } catch (...) {
        error = std::current_exception();
      }
    }).join();
    if (error) std::rethrow_exception(error);
  }

  // Copies, since the tensors may be changed.
  void note(const at::Tensor& each) {
    if (!each.defined()) return;
    result_.exact.push_back(each.detach().clone());
    w_.log += c10::str("v", each._version(), at::IntArrayRef(strides_of(each)), each.requires_grad(),
                       each.is_leaf(), " ");
  }

  void between() {
    if (!now_and_then(3) || all_.empty()) return;
    const torch::NoGradGuard no_grad;
    int kind = dice_.below(6);
    // A part cannot know what eager does with a view, and refuses only the calls after.
    const auto is_view = [](const Recipe& recipe) {
      const int form = recipe.outputs[0].second;
      return form == 1 || form == 3 || form == 7;
    };
    if ((kind == 2 || kind == 4) && std::any_of(program_.recipes.begin(), program_.recipes.end(), is_view))
      kind = 5;
    if (kDebug) std::cerr << "  step " << i_ << ": between " << kind << "\n";
    switch (kind) {
      case 0:
        if (!inputs_[0][0].requires_grad()) inputs_[0][0].mul_(2);
        break;
      case 1:
        w_.layer<LinearImpl>(kLinear).weight.mul_(1.01);
        break;
      case 2:
        all_[0][0].mul_(2);
        break;
      case 3:
        w_.buffers[0].add_(0.1);
        break;
      case 4: {
        const at::AutoGradMode with_graph(true);
        // A leaf's view would be an error.
        if (all_[0][0].requires_grad() && !all_[0][0].is_leaf()) all_[0][0].mul_(2);
        break;
      }
      default:
        w_.leaves[0].mul_(0.99);
    }
  }

  at::Tensor loss_of(const Tensors& out) {
    at::Tensor loss;
    const int turn = program_.turns ? i_ + turn_++ : 0;
    const int kind = (habit(program_.loss, 8) + turn) % 8;
    for (size_t k = 0; k < out.size(); ++k) {
      if (!out[k].defined() || !out[k].requires_grad()) continue;
      if (program_.turns && out.size() > 1 && k == turn % (out.size() + 1)) continue;
      if (k > 0 && (kind == 6 || now_and_then(4))) continue;
      at::Tensor term;
      switch (kind) {
        case 0:
          term = out[k].sum();
          break;
        case 1:
          term = out[k].pow(2).mean();
          break;
        case 2:
          term = (out[k].t() * 0.5).reshape({-1}).cumsum(0).sum();
          break;
        case 3:
          term = out[k].reshape({-1}).narrow(0, 0, 1).sum();
          break;
        case 4:
          term = (out[k] * gradient_for(out[k], 1, i_)).sum();
          break;
        default:
          term = (out[k] * w_.leaves[1].sum()).tanh().sum();
      }
      loss = loss.defined() ? loss + term : term;
    }
    return loss;
  }

  void backwards() {
    Tensors losses;
    for (const Tensors& out : all_) {
      at::Tensor loss;
      try_to([&] { loss = loss_of(out); });
      if (loss.defined()) losses.push_back(loss);
    }
    if (now_and_then(6) && !losses.empty()) w_.kept.push_back(losses[0]);
    if (now_and_then(3) && !w_.kept.empty()) {
      losses.push_back(w_.kept.front());
      w_.kept.erase(w_.kept.begin());
    }
    if (losses.empty()) return;
    // The sum of the losses is made there, too: see forwards().
    const bool threaded = now_and_then(6) && !w_.had_thread;
    const auto action = [&] { backward(losses, habit(program_.backward, 11)); };
    try_to([&] { threaded ? on_thread(action) : action(); });
  }

  at::Tensor sum(const Tensors& losses) {
    at::Tensor total = losses[0];
    for (size_t k = 1; k < losses.size(); ++k) total = total + losses[k];
    return total;
  }

  Tensors wanted() {
    Tensors result;
    for (const at::Tensor& each : parameters()) {
      if (each.requires_grad() && dice_.one_in(2)) result.push_back(each);
    }
    for (const at::Tensor& each : leaves_) result.push_back(each);
    return result;
  }

  void backward(const Tensors& losses, int kind) {
    if (kDebug) std::cerr << "  step " << i_ << ": backward " << kind << " of " << losses.size() << "\n";
    switch (kind) {
      case 0:
        for (const at::Tensor& loss : losses) loss.backward();
        break;
      case 1:
        for (size_t k = losses.size(); k-- > 0;) losses[k].backward();
        break;
      case 2:
        sum(losses).backward({}, true);
        sum(losses).backward();
        break;
      case 3:
        for (const at::Tensor& loss : losses) loss.backward({}, true);
        break;
      case 4: {
        const Tensors to = wanted();
        if (to.empty()) break;
        for (const at::Tensor& each : torch::autograd::grad({sum(losses)}, to, {}, {}, false, true)) {
          result_.exact.push_back(each);
        }
        break;
      }
      case 5: {
        const Tensors to = wanted();
        if (!to.empty()) sum(losses).backward({}, std::nullopt, false, to);
        break;
      }
      case 6: {
        const at::Tensor y = all_[0][0];
        if (y.requires_grad()) y.backward(gradient_for(y, dice_.below(6), i_));
        break;
      }
      case 8:
        // The second one may find its graph freed.
        sum(losses).backward();
        losses[0].backward();
        break;
      case 9:
        for (auto& part : w_.captured) part.reset();
        sum(losses).backward();
        break;
      case 10: {
        if (!dice_.one_in(4)) break;
        const Tensors to = wanted();
        if (to.empty()) break;
        at::Tensor second;
        result_.has_second_derivatives = true;
        for (const at::Tensor& each : torch::autograd::grad({sum(losses)}, to, {}, {}, true, true)) {
          if (each.defined()) result_.close.push_back(each.detach());
          if (each.defined() && each.requires_grad())
            second = second.defined() ? second + each.sum() : each.sum();
        }
        if (!second.defined() || !second.requires_grad()) break;
        for (const at::Tensor& each : torch::autograd::grad({second}, to, {}, {}, false, true)) {
          if (each.defined()) result_.close.push_back(each.detach());
        }
        // Eager has freed what this one went through; the part's second graph is one of its own.
        w_.kept.clear();
        break;
      }
      default:
        sum(losses).backward();
    }
  }

  void after() {
    // What an error leaves behind depends on how far a backward came.
    if (result_.failed) {
      // A part's error comes before its first gradient, and eager's after some of them.
      w_.hooks.clear();
      w_.optimizer->zero_grad(true);
      w_.kept.clear();
    } else if (!now_and_then(5)) {
      w_.optimizer->step();
    }
    for (const at::Tensor& each : leaves_) {
      if (!result_.failed) result_.exact.push_back(each.grad());
    }
  }

  const Program& program_;
  World& w_;
  Dice dice_;
  const int i_;
  bool wild_ = false;
  int turn_ = 0;
  Stepped result_;
  std::vector<Tensors> all_;
  std::vector<Tensors> inputs_;
  Tensors leaves_;
  Tensors previous_;
};

bool is_close(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && torch::allclose(a, b, 1e-3, 1e-5, /*equal_nan=*/true);
}

std::string sorted_words(const std::string& text) {
  std::istringstream words(text);
  std::multiset<std::string> all{std::istream_iterator<std::string>(words), {}};
  return c10::str(std::vector<std::string>(all.begin(), all.end()));
}

std::string difference(const World& a, const World& b, const Stepped& x, const Stepped& y) {
  const bool in_order = !x.has_second_derivatives;
  if (in_order ? a.hooks != b.hooks : sorted_words(a.hooks) != sorted_words(b.hooks))
    return c10::str("hooks of the eager one:\n", a.hooks, "\nof the captured one:\n", b.hooks);
  if (a.log != b.log) return c10::str("log of the eager one:\n", a.log, "\nof the captured one:\n", b.log);
  if (x.exact.size() != y.exact.size() || x.close.size() != y.close.size()) return "another number of results";
  for (size_t i = 0; i < x.exact.size(); ++i) {
    if (!same_bits(x.exact[i], y.exact[i])) return c10::str("result ", i, " differs");
    if (x.exact[i].defined() && strides_of(x.exact[i]) != strides_of(y.exact[i]))
      return c10::str("result ", i, " of sizes ", x.exact[i].sizes(), " has strides ", y.exact[i].strides(),
                      ", not ", x.exact[i].strides());
  }
  for (size_t i = 0; i < x.close.size(); ++i) {
    if (!is_close(x.close[i], y.close[i])) return c10::str("result ", i, " of create_graph is not close");
  }
  const auto everything = [](const World& w) {
    Tensors all = w.model->parameters();
    for (const Tensors& more : {w.leaves, w.model->buffers(), w.buffers})
      all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const Tensors s = everything(a), t = everything(b);
  for (size_t i = 0; i < s.size(); ++i) {
    if (!same_bits(s[i], t[i])) return c10::str("tensor ", i, " differs");
    if (!same_bits(s[i].grad(), t[i].grad())) return c10::str("the gradient of tensor ", i, " differs");
    if (s[i].grad().defined() && strides_of(s[i].grad()) != strides_of(t[i].grad()))
      return c10::str("the gradient of tensor ", i, " has other strides");
    if (s[i]._version() != t[i]._version())
      return c10::str("tensor ", i, " has version ", t[i]._version(), ", not ", s[i]._version());
  }
  return same_bits(a.generator, b.generator) ? "" : "the generators differ";
}

struct Count {
  int replayed = 0;
  int refused = 0;
  uint64_t replays = 0;
  uint64_t backwards = 0;
  uint64_t again = 0;
  uint64_t steps = 0;
  int told = 0;
  std::map<std::string, int> reasons;
};

Stepped step_of(const Program& program, World& w, int number) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_state(w.generator);
  w.log.clear();
  w.hooks.clear();
  Stepped result = Step(program, w, number).run();
  w.generator = generator.get_state();
  return result;
}

void try_seed(uint64_t seed, Count& count, bool passes = true) {
  const Program program(seed);
  for (size_t k = 0; kDebug && k < 2; ++k) {
    std::cerr << "part " << k << ":";
    for (const Instruction& each : program.recipes[k].instructions) std::cerr << " " << each.kind;
    std::cerr << "; outputs";
    for (const auto& [index, form] : program.recipes[k].outputs) std::cerr << " " << form;
    std::cerr << "; takes " << program.takes[k] << "; gives " << program.gives
              << (program.chained ? "; chained" : "") << (program.input_requires_grad ? "; of inputs" : "")
              << "\n";
  }
  const auto eager = made(program, false, passes), captured = made(program, true, passes);
  CaptureStats stats;
  std::string reason;
  const auto look = [&] {
    for (const auto& part : captured->captured) {
      if (!part) continue;
      const CaptureStats now = part->stats();
      stats.replayed = std::max(stats.replayed, now.replayed);
      stats.backwards = std::max(stats.backwards, now.backwards);
      stats.again = std::max(stats.again, now.again);
      if (kDebug)
        std::cerr << "    " << now.calls << " calls: " << now.replayed << " replayed, " << now.recorded
                  << " recorded, " << now.checked << " checked, " << now.eager << " eager, " << now.again
                  << " again\n";
      if (reason.empty()) reason = part->refusal();
    }
  };
  for (int i = 0; i < 22; ++i) {
    const Stepped expected = step_of(program, *eager, i), found = step_of(program, *captured, i);
    look();
    ++count.steps;
    const std::string text = difference(*eager, *captured, expected, found);
    if (text.empty()) continue;
    if (captured->told) {
      ++count.told;
      break;
    }
    ADD_FAILURE() << "seed " << seed << ", step " << i << ": " << text << "\nrefusal: " << reason << "\n"
                  << (kDebug && captured->captured[0]
                          ? captured->captured[0]->explain() + captured->captured[1]->explain()
                          : "");
    return;
  }
  stats.replayed > 0 ? ++count.replayed : ++count.refused;
  count.replays += stats.replayed;
  count.backwards += stats.backwards;
  count.again += stats.again;
  if (!reason.empty()) ++count.reasons[reason.substr(0, 100)];
}

void try_on_engine(uint64_t seed, Count& count) {
  const auto run = [&] { try_seed(seed, count, !kPlain && seed % 4 != 0); };
  try {
    Program(seed).overdrive ? on<Overdrive>(run) : on<StockEngine>(run);
  } catch (const std::exception& error) {
    ADD_FAILURE() << "seed " << seed << ": " << error.what();
  }
}

// Nodes of this thread come before those of a new one, whose numbers begin at 0, in both worlds.
void go_past_other_threads() {
  for (int i = 0; i < 1000000; ++i) at::sequence_number::get_and_increment();
}

TEST(PartsFuzz, ProgramsThatOnceDiffered) {
  go_past_other_threads();
  Count count;
  for (const uint64_t seed : {5000200, 5029493, 5046483, 5050280, 5052554, 5066140, 6001311, 6003007})
    try_on_engine(seed, count);
}

TEST(PartsFuzz, RandomProgramsOfPartsAreEqualOrRefused) {
  uint64_t first = 1, number = 60;
  if (const char* range = std::getenv("OVERDRIVE_CAPTURE_FUZZ")) {
    char* end = nullptr;
    first = std::strtoull(range, &end, 10);
    if (*end == ':') number = std::strtoull(end + 1, nullptr, 10);
  }
  const bool all = std::getenv("OVERDRIVE_FUZZ_ALL") != nullptr;
  Count count;
  go_past_other_threads();
  const int threads = at::get_num_threads();
  at::set_num_threads(1);  // on a loaded machine two threads that wait for each other take ten times as long
  for (uint64_t seed = first; seed < first + number && (all || !HasFailure()); ++seed)
    try_on_engine(seed, count);
  at::set_num_threads(threads);
  std::cout << count.replayed << " programs had replays (" << count.replays << " calls, " << count.backwards
            << " backwards, " << count.again << " by the function), " << count.refused << " had none, "
            << count.told << " ended with an error that says why; " << count.steps << " steps\n";
  for (const auto& [reason, times] : count.reasons) std::cout << "  " << times << " times: " << reason << "\n";
  EXPECT_GT(count.replayed, static_cast<int>(number) / 2);
}

}  // namespace random_parts
}  // namespace overdrive::test
