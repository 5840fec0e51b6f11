// LSTM: many small nodes. A character language model on a public-domain book; the cell is written in the
// small operations of its formula, not as one fused kernel.
//
// What to look for: one step builds a graph of about a thousand nodes whose kernels take a microsecond each.
// Here the engine's own work per node is a large part of the backward, so this is where replacing the engine
// shows most.
#include "examples/trainers/text_task.h"
#include "examples/trainers/trainer.h"

#include <cmath>

namespace overdrive::trainers {

namespace {

namespace nn = torch::nn;

constexpr int64_t kEmbedding = 32;
constexpr int64_t kHidden = 64;
constexpr int64_t kUnroll = 32;

// h' and c' from an input and the state before it.
class CellImpl : public nn::Module {
 public:
  CellImpl() {
    const double spread = 1 / std::sqrt(static_cast<double>(kHidden));
    from_input_ =
        register_parameter("from_input", torch::empty({kEmbedding, 4 * kHidden}).uniform_(-spread, spread));
    from_hidden_ =
        register_parameter("from_hidden", torch::empty({kHidden, 4 * kHidden}).uniform_(-spread, spread));
    bias_ = register_parameter("bias", torch::zeros({4 * kHidden}));
    // A forget gate that starts open lets gradients reach far back from the first step on.
    torch::NoGradGuard no_grad;
    bias_.narrow(0, kHidden, kHidden).fill_(1);
  }

  std::pair<torch::Tensor, torch::Tensor> forward(const torch::Tensor& x, const torch::Tensor& h,
                                                  const torch::Tensor& c) {
    const auto gates = (x.matmul(from_input_) + h.matmul(from_hidden_) + bias_).chunk(4, 1);
    const auto in = torch::sigmoid(gates[0]);
    const auto keep = torch::sigmoid(gates[1]);
    const auto candidate = torch::tanh(gates[2]);
    const auto out = torch::sigmoid(gates[3]);
    const auto c_new = keep * c + in * candidate;
    return {out * torch::tanh(c_new), c_new};
  }

 private:
  torch::Tensor from_input_, from_hidden_, bias_;
};
TORCH_MODULE(Cell);

class Lstm final : public Trainer {
 public:
  explicit Lstm(const Setup& setup)
      : Trainer(setup),
        embedding_(register_module("embedding", nn::Embedding(task_.text().vocabulary(), kEmbedding))),
        cell_(register_module("cell", Cell())),
        head_(register_module("head", nn::Linear(kHidden, task_.text().vocabulary()))) {
    auto& optimizer = add_optimizer(std::make_unique<torch::optim::Adam>(parameters(), 4e-3));
    learning_ = add_learning(optimizer, [this, &optimizer](const auto& batch, Meter& meter) {
      return minimise(
          meter, optimizer, [&] { return loss_of(batch[0]); }, /*clip=*/1.0);
    });
  }

  double step(Meter& meter) override {
    return learn(learning_, {place(task_.stretches(kBatch, kUnroll, generator()))}, meter).item<double>();
  }

  // Bits per character on the part of the book that training never sees.
  double evaluate() override {
    constexpr int64_t kLength = 256;
    return task_.test_bits(kLength, [this](const torch::Tensor& text) { return loss_of(place(text)); });
  }

 private:
  static constexpr int64_t kBatch = 16;

  torch::Tensor loss_of(const torch::Tensor& text) {
    const int64_t batch = text.size(0), length = text.size(1) - 1;
    auto h = torch::zeros({batch, kHidden}, options()), c = torch::zeros({batch, kHidden}, options());
    std::vector<torch::Tensor> states;
    for (int64_t t = 0; t < length; ++t) {
      std::tie(h, c) = cell_->forward(embedding_->forward(text.select(1, t)), h, c);
      states.push_back(h);
    }
    return TextTask::loss(head_->forward(torch::stack(states, 1)), text);
  }

  const TextTask task_;
  nn::Embedding embedding_;
  Cell cell_;
  nn::Linear head_;
  size_t learning_;
};

}  // namespace

TrainerInfo lstm() {
  return {.name = "lstm",
          .what = "character model, LSTM cell in small operations",
          .shows = "many small nodes: the engine's own speed",
          .quality = "test bits per character",
          .more_is_better = false,
          .good = 3.0,
          .default_steps = 1000,
          .make = [](const Setup& setup) { return std::make_unique<Lstm>(setup); }};
}

}  // namespace overdrive::trainers
