// Fused attention of the CPU, as softmax(scale * q k^T + mask) v. LibTorch has a formula neither for it nor for
// its backward operator.
#include "forward_ad/rules/rule_support.h"

#include <cmath>
#include <limits>
#include <tuple>

namespace overdrive::forward_ad::rules {
namespace {
using at::Tensor;
using c10::DispatchKeySet;
using Forward = at::_ops::_scaled_dot_product_flash_attention_for_cpu;
using Backward = at::_ops::_scaled_dot_product_flash_attention_for_cpu_backward;

constexpr double kNever = -std::numeric_limits<double>::infinity();

struct Call {
  const Tensor &query, &key, &value;
  bool is_causal;
  const std::optional<Tensor>& mask;
  std::optional<double> scale;

  double factor() const { return scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1)))); }

  // Several heads of queries may share one of keys and values.
  int64_t queries_per_key() const { return query.size(-3) / key.size(-3); }
  Tensor for_each_query(const Tensor& of_keys) const {
    const int64_t count = queries_per_key();
    return count == 1 ? of_keys : of_keys.repeat_interleave(count, -3);
  }
  Tensor summed_over_queries(const Tensor& gradient) const {
    const int64_t count = queries_per_key();
    return count == 1 ? gradient : gradient.unflatten(-3, {key.size(-3), count}).sum(-3);
  }

  Tensor scores() const {
    Tensor scores = query.matmul(for_each_query(key).transpose(-2, -1)) * factor();
    if (is_causal) {
      Tensor seen = at::ones({query.size(-2), key.size(-2)}, query.options().dtype(at::kBool)).tril();
      scores = scores.masked_fill(seen.logical_not(), kNever);
    }
    if (!is_given(mask)) return scores;
    return mask->scalar_type() == at::kBool ? scores.masked_fill(mask->logical_not(), kNever) : scores + *mask;
  }

  // A query that sees no key gets zeros, as from the kernel.
  static Tensor weights_of(const Tensor& scores) {
    Tensor sees_none = (scores == kNever).all(-1, /*keepdim=*/true);
    return scores.masked_fill(sees_none, 0).softmax(-1).masked_fill(sees_none, 0);
  }
};

// The kernel refuses it, too, but only after LibTorch has said that it has no formula.
void check_dropout(double dropout) {
  TORCH_CHECK(dropout == 0, Forward::name, " has no dropout, so it has no forward derivative with dropout ",
              dropout, ". scaled_dot_product_attention() takes other operators then, which have one.");
}

std::tuple<Tensor, Tensor> attention(DispatchKeySet keys, const Tensor& query, const Tensor& key,
                                     const Tensor& value, double dropout, bool is_causal,
                                     const std::optional<Tensor>& mask, std::optional<double> scale) {
  if (!any_tangent(query, key, value, mask)) {
    return Forward::redispatch(keys & kBelow, query, key, value, dropout, is_causal, mask, scale);
  }
  check_dropout(dropout);
  const Call call{query, key, value, is_causal, mask, scale};
  Tensor scores = call.scores();
  return {Call::weights_of(scores).matmul(call.for_each_query(value)), scores.logsumexp(-1)};
}

std::tuple<Tensor, Tensor, Tensor> attention_backward(DispatchKeySet keys, const Tensor& grad,
                                                      const Tensor& query, const Tensor& key,
                                                      const Tensor& value, const Tensor& output,
                                                      const Tensor& logsumexp, double dropout, bool is_causal,
                                                      const std::optional<Tensor>& mask,
                                                      std::optional<double> scale) {
  if (!any_tangent(grad, query, key, value, mask)) {
    return Backward::redispatch(keys & kBelow, grad, query, key, value, output, logsumexp, dropout, is_causal,
                                mask, scale);
  }
  check_dropout(dropout);
  const Call call{query, key, value, is_causal, mask, scale};
  Tensor weights = Call::weights_of(call.scores());
  Tensor of_weights = weights * grad.matmul(call.for_each_query(value).transpose(-2, -1));
  Tensor of_scores = (of_weights - weights * of_weights.sum(-1, /*keepdim=*/true)) * call.factor();
  return {of_scores.matmul(call.for_each_query(key)),
          call.summed_over_queries(of_scores.transpose(-2, -1).matmul(query)),
          call.summed_over_queries(weights.transpose(-2, -1).matmul(grad))};
}

}  // namespace

void add_attention_rules(torch::Library& table) {
  table.impl("_scaled_dot_product_flash_attention_for_cpu", TORCH_FN(attention));
  table.impl("_scaled_dot_product_flash_attention_for_cpu_backward", TORCH_FN(attention_backward));
}

}  // namespace overdrive::forward_ad::rules
