// Products and quotients: the gradient times or over a factor, which is a tensor of its sizes or one number.
#include "engine/native_nodes/factor.h"
#include "engine/native_nodes/map.h"

#include <torch/csrc/autograd/generated/Functions.h>

namespace overdrive::engine::native_nodes {
namespace {

using namespace torch::autograd::generated;

// The host's product with a tensor has the usual strides. Its product with a number has strides that follow the
// gradient's, and for no elements at all some of its own.
bool has_strides_for(const at::Tensor& gradient, const Factor& factor) {
  return factor.tensor != nullptr || (has_usual_strides(gradient) && gradient.numel() > 0);
}

// Times or over a factor that has the gradient's sizes, or that is one number.
template <typename WithTensor, typename WithNumber>
at::Tensor apply_factor(at::Tensor& gradient, const Factor& factor, bool last_use, WithTensor&& with_tensor,
                        WithNumber&& with_number) {
  return map(gradient, last_use, [&](auto* out, const auto* g, int64_t n) {
    using T = std::remove_pointer_t<decltype(out)>;
    if (factor.tensor == nullptr) {
      with_number(out, g, factor.number_as<T>(), n);
    } else {
      with_tensor(out, g, data_of<T>(*factor.tensor), n);
    }
  });
}

at::Tensor times(at::Tensor& gradient, const Factor& factor, bool last_use) {
  return apply_factor(
      gradient, factor, last_use,
      [](auto* out, const auto* g, const auto* x, int64_t n) { kernels::loops(out).multiply(out, g, x, n); },
      [](auto* out, const auto* g, auto x, int64_t n) { kernels::loops(out).multiply_by(out, g, x, n); });
}

at::Tensor over(at::Tensor& gradient, const Factor& factor, bool last_use) {
  return apply_factor(
      gradient, factor, last_use,
      [](auto* out, const auto* g, const auto* x, int64_t n) { kernels::loops(out).divide(out, g, x, n); },
      [](auto* out, const auto* g, auto x, int64_t n) { kernels::loops(out).divide_by(out, g, x, n); });
}

struct Mul {
  template <typename N>
  static constexpr bool kFits = requires(N& node) {
    host::read_saved(node.self_);
    host::read_saved(node.other_);
  };
  static NativeOutcome run(MulBackward0& node, NativeCall& call) {
    at::Tensor& gradient = call.gradients[0];
    if (!is_plain(gradient)) return NativeOutcome::kOddGradient;
    if (is_large(gradient.numel())) return NativeOutcome::kLarge;
    const bool first = call.wants(0), second = call.wants(1);
    const std::lock_guard<std::mutex> lock(host::mutex_of(node));
    Factor self, other;
    if (first && !other.read(node.other_, gradient)) return NativeOutcome::kOddSaved;
    if (second && !self.read(node.self_, gradient)) return NativeOutcome::kOddSaved;
    if (self.is_nan() || other.is_nan()) return NativeOutcome::kOddSaved;
    if ((second && !has_strides_for(gradient, self)) || (first && !has_strides_for(gradient, other))) {
      return NativeOutcome::kOddGradient;
    }
    if ((self.tensor != nullptr || other.tensor != nullptr) && has_nan(gradient)) return NativeOutcome::kNaN;
    if (second) call.results[1] = times(gradient, self, !first);
    if (first) call.results[0] = times(gradient, other, true);
    return NativeOutcome::kRan;
  }
};

struct Div {
  template <typename N>
  static constexpr bool kFits = Mul::kFits<N>;
  static NativeOutcome run(DivBackward0& node, NativeCall& call) {
    at::Tensor& gradient = call.gradients[0];
    if (!is_plain(gradient)) return NativeOutcome::kOddGradient;
    if (is_large(gradient.numel())) return NativeOutcome::kLarge;
    const bool first = call.wants(0), second = call.wants(1);
    const std::lock_guard<std::mutex> lock(host::mutex_of(node));
    Factor self, other;
    if (!other.read(node.other_, gradient)) return NativeOutcome::kOddSaved;
    if (!has_strides_for(gradient, other)) return NativeOutcome::kOddGradient;
    if (second) {
      if (!self.read(node.self_, gradient)) return NativeOutcome::kOddSaved;
      if (self.tensor == nullptr || other.tensor == nullptr) return NativeOutcome::kOddShape;
      if (has_nan(gradient)) return NativeOutcome::kNaN;
      call.results[1] = map(gradient, !first, [&](auto* out, const auto* g, int64_t n) {
        using T = std::remove_pointer_t<decltype(out)>;
        kernels::loops(out).divisor_backward(out, g, data_of<T>(*self.tensor), data_of<T>(*other.tensor), n);
      });
    }
    if (first) call.results[0] = over(gradient, other, true);
    return NativeOutcome::kRan;
  }
};

// By a number that the node keeps. The host makes a tensor without dimensions of it, of double for a fraction,
// and a gradient without dimensions would become one of double.
template <at::Tensor (*kWith)(at::Tensor&, const Factor&, bool)>
struct WithScalar {
  template <typename N>
  static constexpr bool kFits = requires(N& node) { node.other; };
  template <typename N>
  static NativeOutcome run(N& node, NativeCall& call) {
    at::Tensor& gradient = call.gradients[0];
    if (!is_plain(gradient)) return NativeOutcome::kOddGradient;
    if (is_large(gradient.numel())) return NativeOutcome::kLarge;
    Factor factor;
    if (gradient.dim() == 0) return NativeOutcome::kOddShape;
    if (!factor.read(node.other) || factor.is_nan()) return NativeOutcome::kOddValue;
    if (!has_strides_for(gradient, factor)) return NativeOutcome::kOddGradient;
    call.results[0] = kWith(gradient, factor, true);
    return NativeOutcome::kRan;
  }
};

}  // namespace

void add_scaled(Table& table) {
  table.add<MulBackward0, Mul>("MulBackward0");
  table.add<MulBackward1, WithScalar<times>>("MulBackward1");
  table.add<DivBackward0, Div>("DivBackward0");
  table.add<DivBackward1, WithScalar<over>>("DivBackward1");
}

}  // namespace overdrive::engine::native_nodes
