#include "test/forward_ad/op_table.h"

#include <ATen/ATen.h>

namespace overdrive::forward_ad::op_cases {

using at::Tensor;

namespace {

const char* const kOfStatistics =
    "the second derivative of the backward operator uses the mean and deviation that the call made as if they "
    "were "
    "constants, so its own derivative is wrong";
const char* const kNotInReverse = "the backward operator has no derivative in reverse mode";

}  // namespace

std::vector<OpCase> networks() {
  return {
      {"conv1d", Shape{1, 2, 5},
       [](const Tensor& x) { return at::conv1d(x.exp(), x.narrow(2, 0, 3).sin(), {}, 1, 1); }},
      {"conv2d", Shape{1, 1, 4, 4},
       [](const Tensor& x) { return at::conv2d(x.exp(), x.narrow(2, 0, 2).narrow(3, 1, 2)); }},
      {"conv_transpose1d", Shape{1, 2, 3},
       [](const Tensor& x) {
         return at::conv_transpose1d(x.exp(), fixed({2, 1, 2}));
       }},
      {"avg_pool2d", Shape{1, 1, 4, 4}, [](const Tensor& x) { return at::avg_pool2d(x.exp(), 2); }},
      {"max_pool2d", Shape{1, 1, 4, 4}, [](const Tensor& x) { return at::max_pool2d(x.exp(), 2); }},
      {"layer_norm", kMatrix,
       [](const Tensor& x) { return at::layer_norm(x.exp(), {3}, fixed({3}), fixed({3})); }, 0.2, 0.8, 5, 2,
       kOfStatistics},
      {"batch_norm", Shape{4, 2},
       [](const Tensor& x) {
         return at::batch_norm(x.exp(), fixed({2}), fixed({2}), {}, {}, true, 0.1, 1e-3, false);
       },
       0.2, 0.8, 5, 2, kOfStatistics},
      {"group_norm", Shape{1, 4, 2},
       [](const Tensor& x) { return at::group_norm(x.exp(), 2, fixed({4}), fixed({4})); }},
      {"softmax", kMatrix, [](const Tensor& x) { return x.exp().softmax(1); }},
      {"log_softmax", kMatrix, [](const Tensor& x) { return x.exp().log_softmax(1); }},
      {"attention", Shape{1, 1, 3, 2},
       [](const Tensor& x) { return at::softmax(x.matmul(x.exp().transpose(2, 3)), -1).matmul(x); }},
      {"softmax_of_a_number", Shape{}, [](const Tensor& x) { return x.exp().softmax(0) * x; }},
      {"attention_by_one_op", Shape{1, 2, 3, 2},
       [](const Tensor& x) { return at::scaled_dot_product_attention(x.sin(), x.exp(), x); }, 0.2, 0.8, 5, 1,
       kNotInReverse},
      {"attention_causal", Shape{1, 1, 3, 2},
       [](const Tensor& x) { return at::scaled_dot_product_attention(x.sin(), x.exp(), x, {}, 0, true, 0.7); },
       0.2, 0.8, 5, 1, kNotInReverse},
      {"attention_masked", Shape{1, 1, 3, 2},
       [](const Tensor& x) {
         return at::scaled_dot_product_attention(x, x.exp(), x.sin(), fixed({3, 3}));
       },
       0.2, 0.8, 5, 1, kNotInReverse},
      {"attention_with_part_of_the_keys_or_none", Shape{1, 1, 3, 2},
       [](const Tensor& x) {
         return at::scaled_dot_product_attention(x, x.exp(), x.sin(), fixed({3, 3}) > 0.2);
       },
       0.2, 0.8, 5, 1, kNotInReverse},
      {"attention_with_grouped_queries", Shape{1, 4, 3, 2},
       [](const Tensor& x) {
         return at::scaled_dot_product_attention(x.sin(), x.narrow(1, 0, 2).exp(), x.narrow(1, 1, 2), {}, 0,
                                                 false, {}, /*enable_gqa=*/true);
       },
       0.2, 0.8, 5, 1, kNotInReverse},
      {"attention_with_grouped_queries_causal", Shape{1, 3, 3, 2},
       [](const Tensor& x) {
         return at::scaled_dot_product_attention(x, x.narrow(1, 2, 1).exp(), x.narrow(1, 1, 1).sin(), {}, 0,
                                                 true, 0.7, /*enable_gqa=*/true);
       },
       0.2, 0.8, 5, 1, kNotInReverse},
      {"layer_norm_without_weights", kMatrix, [](const Tensor& x) { return at::layer_norm(x.exp(), {3}); }, 0.2,
       0.8, 5, 2, kOfStatistics},
      {"layer_norm_of_its_weights", Shape{2, 2, 2},
       [](const Tensor& x) {
         return at::layer_norm(x.exp(), {2, 2}, x[0].sin(), x[1]);
       },
       0.2, 0.8, 5, 2, kOfStatistics},
      {"batch_norm_in_eval", Shape{4, 2},
       [](const Tensor& x) {
         return at::batch_norm(x.exp(), x[0], x[1], fixed({2}), fixed({2}).abs(), false, 0.1, 1e-3, false);
       }},
      {"instance_norm", Shape{1, 2, 4},
       [](const Tensor& x) {
         return at::instance_norm(x.exp(), fixed({2}), {}, {}, {}, true, 0.1, 1e-3, false);
       },
       0.2, 0.8, 5, 2, kOfStatistics},
      {"rms_norm", kMatrix, [](const Tensor& x) { return at::rms_norm(x.exp(), {3}, fixed({3}), 1e-3); }},
      {"conv2d_with_bias", Shape{1, 2, 4, 4},
       [](const Tensor& x) {
         return at::conv2d(x.exp(), x.view({2, 2, 2, 4}).narrow(3, 0, 2).sin(), x[0][0][0].narrow(0, 0, 2), 2,
                           1);
       }},
      {"adaptive_avg_pool2d", Shape{1, 1, 4, 4},
       [](const Tensor& x) {
         return at::adaptive_avg_pool2d(x.exp(), {2, 2});
       }},
      {"reflection_pad1d", Shape{1, 1, 4},
       [](const Tensor& x) {
         return at::reflection_pad1d(x.exp(), {1, 2});
       }},
      {"replication_pad1d", Shape{1, 1, 4},
       [](const Tensor& x) {
         return at::replication_pad1d(x.exp(), {1, 2});
       }},
      {"upsample_bilinear2d", Shape{1, 1, 2, 2},
       [](const Tensor& x) {
         return at::upsample_bilinear2d(x.exp(), {3, 3}, false);
       }},
      {"lstm_cell", kMatrix,
       [](const Tensor& x) {
         auto [h, c] =
             at::lstm_cell(x, {x.narrow(1, 0, 2), x.narrow(1, 1, 2).exp()}, fixed({8, 3}), fixed({8, 2}));
         return h * c;
       }},
      {"gru_cell", kMatrix,
       [](const Tensor& x) {
         return at::gru_cell(x, x.narrow(1, 0, 2), fixed({6, 3}), fixed({6, 2}));
       }},
      {"tanh_mlp", kMatrix,
       [](const Tensor& x) {
         return x.matmul(fixed({3, 4})).tanh().matmul(fixed({4, 2})).tanh();
       }},
  };
}

// Weighted, some classes left out.
Tensor nll(const Tensor& log_probabilities, const Tensor& classes, int64_t reduction) {
  return at::nll_loss_nd(log_probabilities, classes, fixed({3}).abs(), reduction, /*ignore_index=*/1);
}

std::vector<OpCase> losses() {
  return {
      {"cross_entropy", kMatrix,
       [](const Tensor& x) {
         return at::cross_entropy_loss(x.exp(), indices({2, 0}));
       }},
      {"cross_entropy_smoothed", kMatrix,
       [](const Tensor& x) {
         return at::cross_entropy_loss(x.exp(), indices({2, 0}), fixed({3}).abs(), at::Reduction::Sum, -100,
                                       0.1);
       }},
      {"cross_entropy_of_images", Shape{2, 3, 2, 1},
       [](const Tensor& x) {
         return at::cross_entropy_loss(x.exp(), indices({2, 1, 0, 0}).view({2, 2, 1}), fixed({3}).abs());
       }},
      {"cross_entropy_of_one_sample", Shape{3},
       [](const Tensor& x) { return at::cross_entropy_loss(x.exp(), at::full({}, 2, at::kLong)); }},
      {"cross_entropy_of_probabilities", kMatrix,
       [](const Tensor& x) { return at::cross_entropy_loss(x.exp(), x.softmax(1)); }},
      {"nll_loss", kMatrix,
       [](const Tensor& x) {
         return nll(x.exp(), indices({2, 1}), at::Reduction::Mean) +
                nll(x.exp(), indices({2, 1}), at::Reduction::None);
       }},
      {"nll_loss2d", Shape{1, 3, 2, 2},
       [](const Tensor& x) {
         Tensor classes = indices({2, 1, 0, 0}).view({1, 2, 2});
         return nll(x.exp(), classes, at::Reduction::Sum) + nll(x.exp(), classes, at::Reduction::None);
       }},
      {"mse_loss", kFlat, [](const Tensor& x) { return at::mse_loss(x.exp(), x.sin()); }},
      {"l1_loss", kFlat, [](const Tensor& x) { return at::l1_loss(x.exp(), x.sin()); }},
      {"smooth_l1_loss", kFlat,
       [](const Tensor& x) { return at::smooth_l1_loss(x.exp() * 2, x * x, at::Reduction::Sum, 1.5); }},
      {"huber_loss", kFlat,
       [](const Tensor& x) {
         return at::huber_loss(x * x.exp(), x.sin(), at::Reduction::None, 2) +
                at::huber_loss(x.exp(), x, 1, 0.3);
       }},
      {"soft_margin_loss", kFlat,
       [](const Tensor& x) { return at::soft_margin_loss(x.exp(), fixed({4}).sign(), at::Reduction::Sum); }},
      {"binary_cross_entropy", kFlat,
       [](const Tensor& x) {
         return at::binary_cross_entropy(x * x, x.sin(), fixed({4})) +
                at::binary_cross_entropy(x, x * x, {}, 0);
       }},
      {"binary_cross_entropy_with_logits", kFlat,
       [](const Tensor& x) { return at::binary_cross_entropy_with_logits(x.exp(), fixed({4}).sigmoid()); }},
      {"kl_div", kFlat, [](const Tensor& x) { return at::kl_div(x.sin(), x.exp()); }},
      {"poisson_nll_loss", kFlat,
       [](const Tensor& x) { return at::poisson_nll_loss(x.exp(), x, true, true, 1e-8, at::Reduction::Mean); }},
      {"cosine_similarity", kMatrix, [](const Tensor& x) { return at::cosine_similarity(x.exp(), x.sin()); }},
  };
}

}  // namespace overdrive::forward_ad::op_cases
