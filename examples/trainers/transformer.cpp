// Transformer: a character GPT of six layers, with a sample of its writing at the end.
//
// What to look for: larger kernels than the LSTM's and fewer nodes for the same text, as most of today's models
// have; the engine's share of a step is small, and what lives between forward and backward is most of the
// memory.
#include "checkpoint/chain/sequential.h"
#include "examples/trainers/text_task.h"
#include "examples/trainers/trainer.h"

namespace overdrive::trainers {

namespace {

namespace nn = torch::nn;

constexpr int64_t kLayers = 6;
constexpr int64_t kRootOfLayers = 3;  // rounded up: fewer segments are longer
constexpr int64_t kWidth = 64;
constexpr int64_t kHeads = 4;
constexpr int64_t kContext = 64;

class BlockImpl : public nn::Module {
 public:
  BlockImpl()
      : norm1_(register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({kWidth})))),
        norm2_(register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({kWidth})))),
        to_qkv_(register_module("to_qkv", nn::Linear(kWidth, 3 * kWidth))),
        from_heads_(register_module("from_heads", nn::Linear(kWidth, kWidth))),
        widen_(register_module("widen", nn::Linear(kWidth, 4 * kWidth))),
        narrow_(register_module("narrow", nn::Linear(4 * kWidth, kWidth))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    const auto attended = x + attention(norm1_->forward(x));
    return attended + narrow_->forward(torch::gelu(widen_->forward(norm2_->forward(attended))));
  }

 private:
  torch::Tensor attention(const torch::Tensor& x) {
    const int64_t batch = x.size(0), length = x.size(1);
    // {batch, length, 3*width} -> three of {batch, heads, length, width/heads}
    const auto qkv =
        to_qkv_->forward(x).view({batch, length, 3, kHeads, kWidth / kHeads}).permute({2, 0, 3, 1, 4});
    const auto mixed =
        at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], /*attn_mask=*/{}, /*dropout_p=*/0.0,
                                         /*is_causal=*/true);
    return from_heads_->forward(mixed.transpose(1, 2).reshape({batch, length, kWidth}));
  }

  nn::LayerNorm norm1_, norm2_;
  nn::Linear to_qkv_, from_heads_, widen_, narrow_;
};
TORCH_MODULE(Block);

class Transformer final : public Trainer {
 public:
  explicit Transformer(const Setup& setup)
      : Trainer(setup),
        characters_(register_module("characters", nn::Embedding(task_.text().vocabulary(), kWidth))),
        places_(register_module("places", nn::Embedding(kContext, kWidth))),
        norm_(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({kWidth})))),
        head_(register_module("head", nn::Linear(kWidth, task_.text().vocabulary()))) {
    for (int64_t i = 0; i < kLayers; ++i) {
      blocks_.push_back(register_module("block" + std::to_string(i), Block()));
    }
    for (Block& block : blocks_) {
      layers_.push_back([block](const torch::Tensor& x) mutable { return block->forward(x); });
    }
    if (setup.checkpointing && setup.checkpointing->snapshots > 0) {
      schedule_ = checkpoint::Revolve{setup.checkpointing->snapshots};
    }
    auto& optimizer = add_optimizer(std::make_unique<torch::optim::AdamW>(
        parameters(), torch::optim::AdamWOptions(2e-3).weight_decay(0.01)));
    learning_ = add_learning(optimizer, [this, &optimizer](const auto& batch, Meter& meter) {
      return minimise(
          meter, optimizer, [&] { return loss_of(batch[0]); }, /*clip=*/1.0);
    });
  }

  double step(Meter& meter) override {
    return learn(learning_, {place(task_.stretches(kBatch, kContext, generator()))}, meter).item<double>();
  }

  // Bits per character on the part of the book that training never sees.
  double evaluate() override {
    return task_.test_bits(kContext, [this](const torch::Tensor& text) { return loss_of(place(text)); });
  }

  std::string epilogue() override {
    torch::NoGradGuard no_grad;
    auto random = at::make_generator<at::CPUGeneratorImpl>(uint64_t{7});
    auto written = task_.text().test.narrow(0, 0, 8).unsqueeze(0);
    for (int i = 0; i < 240; ++i) {
      const int64_t seen = std::min(written.size(1), kContext);
      const auto scores = scores_of(place(written.narrow(1, written.size(1) - seen, seen))).select(1, seen - 1);
      const auto chances = torch::softmax(scores.to(torch::kCPU, torch::kFloat32) / 0.8, 1);
      const auto next = torch::multinomial(chances, 1, true, random);
      written = torch::cat({written, next}, 1);
    }
    return task_.text().decode(written.squeeze(0));
  }

 private:
  static constexpr int64_t kBatch = 8;

  torch::Tensor scores_of(const torch::Tensor& text) {
    auto x = characters_->forward(text) + places_->forward(torch::arange(text.size(1), text.options()));
    return head_->forward(norm_->forward(through_blocks(x)));
  }

  // With --checkpoint, the blocks keep their inputs only, or fewer, and run again in the backward. The early
  // form runs on both engines.
  torch::Tensor through_blocks(torch::Tensor x) {
    if (setup().checkpointing)
      return checkpoint::checkpoint_sequential(layers_, x, schedule_, {.form = checkpoint::Form::kEarly});
    for (auto& block : blocks_) x = block->forward(x);
    return x;
  }

  torch::Tensor loss_of(const torch::Tensor& text) {
    return TextTask::loss(scores_of(text.narrow(1, 0, text.size(1) - 1)), text);
  }

  const TextTask task_;
  nn::Embedding characters_, places_;
  nn::LayerNorm norm_;
  nn::Linear head_;
  std::vector<Block> blocks_;
  std::vector<checkpoint::Layer> layers_;  // the blocks
  checkpoint::ChainSchedule schedule_ = checkpoint::Segments{kRootOfLayers};
  size_t learning_;
};

}  // namespace

TrainerInfo transformer() {
  return {.name = "transformer",
          .what = "character GPT, 6 layers",
          .shows = "larger kernels, and the memory between forward and backward",
          .quality = "test bits per character",
          .more_is_better = false,
          .good = 3.4,
          .default_steps = 600,
          .make = [](const Setup& setup) { return std::make_unique<Transformer>(setup); },
          .checkpointable = true};
}

}  // namespace overdrive::trainers
