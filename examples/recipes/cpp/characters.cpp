// C++: a character model, an LSTM whose state goes on from window to window
//
// The loop stays as it is: net and optimizer are captured as parts, and gradients are clipped between them.
#include "examples/recipes/cpp/recipe.h"

#include <overdrive/replay/captured.h>

#include <random>

namespace nn = torch::nn;

namespace {

constexpr int64_t kTexts = 16, kWindow = 16, kHidden = 48;
const std::string kLetters = " .abcdefghijklmnopqrstuvwxyz";

// Sentences of a small grammar.
std::string write_text(size_t length) {
  const std::vector<std::vector<std::string>> words{{"the", "a", "every", "no"},
                                                    {"small", "old", "quick", "green"},
                                                    {"cat", "ship", "robot", "river", "tree"},
                                                    {"sees", "carries", "follows", "loves"},
                                                    {"the", "a"},
                                                    {"moon.", "road.", "garden.", "queen."}};
  std::mt19937 random(0);
  std::string text;
  while (text.size() < length) {
    for (const auto& choice : words) text += choice[random() % choice.size()] + ' ';
  }
  text.resize(length);
  return text;
}

// Letters as numbers: a column a text, which goes on from row to row.
at::Tensor columns_of(const std::string& text) {
  auto numbers = torch::empty({static_cast<int64_t>(text.size())}, at::kLong);
  for (size_t i = 0; i < text.size(); ++i) {
    numbers.mutable_data_ptr<int64_t>()[i] = static_cast<int64_t>(kLetters.find(text[i]));
  }
  return numbers.reshape({kTexts, -1}).t().contiguous();
}

struct CharacterModel : nn::Module {
  nn::Embedding letters{static_cast<int64_t>(kLetters.size()), 24};
  nn::LSTM lstm{24, kHidden};
  nn::Linear out{kHidden, static_cast<int64_t>(kLetters.size())};

  CharacterModel() {
    register_module("letters", letters);
    register_module("lstm", lstm);
    register_module("out", out);
  }
  std::tuple<at::Tensor, at::Tensor, at::Tensor> forward(at::Tensor x, at::Tensor h, at::Tensor c) {
    auto [hidden, state] = lstm->forward(letters->forward(x), std::tuple(h, c));
    return {out->forward(hidden), std::get<0>(state), std::get<1>(state)};
  }
};

void train(recipe::Run& run) {
  auto model = std::make_shared<CharacterModel>();
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(2e-3));
  auto net = overdrive::captured(model);         // overdrive
  auto update = overdrive::captured(optimizer);  // overdrive
  const auto text = columns_of(write_text(kTexts * 2560));

  for (int64_t epoch = 0; epoch < run.many(50); ++epoch) {
    auto h = torch::zeros({1, kTexts, kHidden}), c = torch::zeros({1, kTexts, kHidden});
    for (int64_t begin = 0; begin + kWindow < text.size(0); begin += kWindow) {
      const auto x = text.narrow(0, begin, kWindow), y = text.narrow(0, begin + 1, kWindow);
      at::Tensor loss;
      run.timed([&] {
        auto [logits, next_h, next_c] = run.captured ? net(x, h, c) : model->forward(x, h, c);  // overdrive
        loss = torch::cross_entropy_loss(logits.flatten(0, 1), y.flatten());
        optimizer.zero_grad();
        loss.backward();
        nn::utils::clip_grad_norm_(model->parameters(), 1.0);
        run.captured ? update.step() : optimizer.step();  // overdrive
        h = next_h.detach(), c = next_c.detach();
      });
      if (begin % 1024 == 0) TORCH_CHECK(std::isfinite(loss.item<float>()), "window ", begin / kWindow);
    }
  }
  run.done(model->parameters(), net.stats().replayed);
}

}  // namespace

int main(int argc, char** argv) { return recipe::main_of(argc, argv, train); }
