#include "test/forward_ad/op_table.h"

#include <ATen/ATen.h>

namespace overdrive::forward_ad::op_cases {

using at::Tensor;

std::vector<OpCase> indexing() {
  return {
      {"index_select", kFlat,
       [](const Tensor& x) {
         return x.exp().index_select(0, indices({2, 0, 2}));
       }},
      {"gather", kFlat,
       [](const Tensor& x) {
         return x.exp().gather(0, indices({3, 3, 1}));
       }},
      {"index", kSquare,
       [](const Tensor& x) {
         return x.exp().index({indices({0, 2}), indices({1, 1})});
       }},
      {"index_put", kFlat,
       [](const Tensor& x) {
         return x.index_put({indices({1, 3})}, x.exp().narrow(0, 0, 2));
       }},
      {"masked_fill", kFlat, [](const Tensor& x) { return x.exp().masked_fill(fixed({4}) > 0, 2.0); }},
      {"scatter_add", kFlat,
       [](const Tensor& x) {
         return x.scatter_add(0, indices({0, 0, 2, 1}), x.exp());
       }},
      {"scatter_reduce_prod", kMatrix,
       [](const Tensor& x) {
         return x.scatter_reduce(0, indices({0, 0, 1, 0, 1, 1}).view({2, 3}), x.exp(), "prod");
       }},
      {"scatter_reduce_prod_without_self", kMatrix,
       [](const Tensor& x) {
         return x.scatter_reduce(1, indices({2, 2, 0, 1}).view({2, 2}), x.exp().narrow(1, 0, 2), "prod",
                                 /*include_self=*/false);
       }},
      {"take", kSquare,
       [](const Tensor& x) {
         return x.exp().take(indices({8, 1, 1}));
       }},
      {"cat", kFlat,
       [](const Tensor& x) {
         return at::cat({x.sin(), x.exp()});
       }},
      {"stack", kFlat,
       [](const Tensor& x) {
         return at::stack({x.sin(), x.exp(), x});
       }},
      {"flip_roll", kFlat, [](const Tensor& x) { return x.exp().flip({0}) * x.roll(1, 0); }},
      {"sort", kFlat, [](const Tensor& x) { return std::get<0>((x * fixed({4})).exp().sort()); }},
      {"embedding", kMatrix,
       [](const Tensor& x) {
         return at::embedding(x.exp(), indices({1, 0, 1}));
       }},
  };
}

std::vector<OpCase> views_and_in_place() {
  return {
      {"view", kMatrix,
       [](const Tensor& x) {
         return x.view({3, 2}).exp() * x.view({3, 2});
       }},
      {"permute", kMatrix,
       [](const Tensor& x) {
         return x.permute({1, 0}).exp() * x.t();
       }},
      {"expand", kFlat,
       [](const Tensor& x) {
         return x.unsqueeze(0).expand({2, 4}) * x.exp();
       }},
      {"narrow", kFlat, [](const Tensor& x) { return x.narrow(0, 1, 2) * x.narrow(0, 2, 2).exp(); }},
      {"unfold", kFlat, [](const Tensor& x) { return x.unfold(0, 2, 1).exp() * x[0]; }},
      {"diagonal", kSquare, [](const Tensor& x) { return x.diagonal() * x.exp().diagonal(1).sum(); }},
      {"as_strided", kMatrix,
       [](const Tensor& x) {
         return x.as_strided({2, 2}, {2, 1}, 1).exp() * x[0][0];
       }},
      {"chunk", kFlat, [](const Tensor& x) { return x.chunk(2)[0] * x.chunk(2)[1].exp(); }},
      {"mul_in_place", kFlat,
       [](const Tensor& x) {
         Tensor y = x.sin();
         y.mul_(x).add_(x, 2).mul_(x);
         return y;
       }},
      {"mul_in_place_by_itself", kFlat,
       [](const Tensor& x) {
         Tensor y = x.exp();
         y.mul_(y);
         return y;
       },
       0.2, 0.8, 5, 0,
       "LibTorch's node saves the tensor whose history it becomes: its backward refuses, and it keeps itself "
       "alive"},
      {"mul_in_place_by_a_view_of_itself", kMatrix,
       [](const Tensor& x) {
         Tensor y = x.exp();
         y[0].mul_(y[0]).mul_(y[1]);
         return y;
       },
       0.2, 0.8, 5, 0, "as mul_in_place_by_itself"},
      {"sigmoid_in_place", kFlat,
       [](const Tensor& x) {
         Tensor y = x * x;
         y.sigmoid_();
         return y - x;
       }},
      {"copy_into_a_view", kMatrix,
       [](const Tensor& x) {
         Tensor y = at::zeros({2, 3}, at::kDouble);
         y[0].copy_(x[1].exp());
         y.select(1, 2).add_(x.select(1, 0).sin());
         return y * x;
       }},
      {"in_place_through_a_view", kMatrix,
       [](const Tensor& x) {
         Tensor y = x.sin();
         y.t()[1].mul_(x.t()[0]);
         return y * y;
       }},
      {"index_add_in_place", kFlat,
       [](const Tensor& x) {
         Tensor y = x.sin();
         y.index_add_(0, indices({1, 1}), x.narrow(0, 0, 2).sin());
         return y * x;
       }},
  };
}

}  // namespace overdrive::forward_ad::op_cases
