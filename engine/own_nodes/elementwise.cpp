// Nodes whose gradient is the incoming one, element by element: passed on, scaled, or times a derivative that
// one IEEE operation after the other gives.
#include "engine/kernels/elementwise.h"
#include "engine/own_nodes/factor.h"
#include "engine/own_nodes/table.h"

#include <ATen/ops/tanh_backward_cpu_dispatch.h>
#include <torch/csrc/autograd/generated/Functions.h>

namespace overdrive::engine::own {
namespace {

using namespace torch::autograd::generated;
using torch::autograd::SavedVariable;

// The gradient goes on as it is, to one edge or to both.
template <typename N>
struct PassOn {
  template <typename>
  static constexpr bool kFits = true;
  static OwnOutcome run(N&, OwnCall& call) {
    at::Tensor& gradient = call.gradients[0];
    if (!is_strided(gradient)) return OwnOutcome::kOddGradient;
    if (!call.wants(0)) return OwnOutcome::kOddShape;
    call.results[0] = std::move(gradient);
    return OwnOutcome::kRan;
  }
};

struct Add {
  template <typename N>
  static constexpr bool kFits = requires(N& node) { node.alpha; };
  static OwnOutcome run(AddBackward0& node, OwnCall& call) {
    at::Tensor& gradient = call.gradients[0];
    if (!is_strided(gradient)) return OwnOutcome::kOddGradient;
    if (!is_one(node.alpha)) return OwnOutcome::kOddValue;
    const bool first = call.wants(0);
    if (call.wants(1)) call.results[1] = first ? gradient : std::move(gradient);
    if (first) call.results[0] = std::move(gradient);
    return OwnOutcome::kRan;
  }
};

// Writes `kernel(out, gradient, n)` over the gradient, or into a new tensor when that is still wanted or seen.
template <typename Kernel>
at::Tensor map(at::Tensor& gradient, bool last_use, Kernel&& kernel) {
  const int64_t n = gradient.numel();
  if (last_use && may_be_written(gradient)) {
    for_type_of(gradient, [&](auto zero) {
      auto* data = mutable_data_of<decltype(zero)>(gradient);
      kernel(data, data, n);
    });
    return std::move(gradient);
  }
  at::Tensor out = new_tensor(gradient.sizes(), gradient);
  for_type_of(gradient, [&](auto zero) {
    using T = decltype(zero);
    kernel(mutable_data_of<T>(out), data_of<T>(gradient), n);
  });
  return out;
}

bool has_nan(const at::Tensor& t) {
  bool found = false;
  for_type_of(t, [&](auto zero) {
    const auto* data = data_of<decltype(zero)>(t);
    found = kernels::loops(data).has_nan(data, t.numel());
  });
  return found;
}

struct Sub {
  template <typename N>
  static constexpr bool kFits = requires(N& node) { node.alpha; };
  static OwnOutcome run(SubBackward0& node, OwnCall& call) {
    at::Tensor& gradient = call.gradients[0];
    if (!is_plain(gradient)) return OwnOutcome::kOddGradient;
    if (!is_one(node.alpha)) return OwnOutcome::kOddValue;
    if (call.wants(1)) {
      if (is_large(gradient.numel())) return OwnOutcome::kLarge;
      call.results[1] = map(gradient, !call.wants(0),
                            [](auto* out, const auto* g, int64_t n) { kernels::loops(out).negate(out, g, n); });
    }
    if (call.wants(0)) call.results[0] = std::move(gradient);
    return OwnOutcome::kRan;
  }
};

struct Neg {
  template <typename N>
  static constexpr bool kFits = true;
  static OwnOutcome run(NegBackward0&, OwnCall& call) {
    at::Tensor& gradient = call.gradients[0];
    if (!is_plain(gradient)) return OwnOutcome::kOddGradient;
    if (is_large(gradient.numel())) return OwnOutcome::kLarge;
    call.results[0] =
        map(gradient, true, [](auto* out, const auto* g, int64_t n) { kernels::loops(out).negate(out, g, n); });
    return OwnOutcome::kRan;
  }
};

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
  static OwnOutcome run(MulBackward0& node, OwnCall& call) {
    at::Tensor& gradient = call.gradients[0];
    if (!is_plain(gradient)) return OwnOutcome::kOddGradient;
    if (is_large(gradient.numel())) return OwnOutcome::kLarge;
    const bool first = call.wants(0), second = call.wants(1);
    const std::lock_guard<std::mutex> lock(host::mutex_of(node));
    Factor self, other;
    if (first && !other.read(node.other_, gradient)) return OwnOutcome::kOddSaved;
    if (second && !self.read(node.self_, gradient)) return OwnOutcome::kOddSaved;
    if (self.is_nan() || other.is_nan()) return OwnOutcome::kOddSaved;
    if ((self.tensor != nullptr || other.tensor != nullptr) && has_nan(gradient)) return OwnOutcome::kNaN;
    if (second) call.results[1] = times(gradient, self, !first);
    if (first) call.results[0] = times(gradient, other, true);
    return OwnOutcome::kRan;
  }
};

struct Div {
  template <typename N>
  static constexpr bool kFits = Mul::kFits<N>;
  static OwnOutcome run(DivBackward0& node, OwnCall& call) {
    at::Tensor& gradient = call.gradients[0];
    if (!is_plain(gradient)) return OwnOutcome::kOddGradient;
    if (is_large(gradient.numel())) return OwnOutcome::kLarge;
    const bool first = call.wants(0), second = call.wants(1);
    const std::lock_guard<std::mutex> lock(host::mutex_of(node));
    Factor self, other;
    if (!other.read(node.other_, gradient)) return OwnOutcome::kOddSaved;
    if (second) {
      if (!self.read(node.self_, gradient)) return OwnOutcome::kOddSaved;
      if (self.tensor == nullptr || other.tensor == nullptr) return OwnOutcome::kOddShape;
      if (has_nan(gradient)) return OwnOutcome::kNaN;
      call.results[1] = map(gradient, !first, [&](auto* out, const auto* g, int64_t n) {
        using T = std::remove_pointer_t<decltype(out)>;
        kernels::loops(out).divisor_backward(out, g, data_of<T>(*self.tensor), data_of<T>(*other.tensor), n);
      });
    }
    if (first) call.results[0] = over(gradient, other, true);
    return OwnOutcome::kRan;
  }
};

// By a number that the node keeps. The host makes a tensor without dimensions of it, of double for a fraction,
// and a gradient without dimensions would become one of double.
template <at::Tensor (*kWith)(at::Tensor&, const Factor&, bool)>
struct WithScalar {
  template <typename N>
  static constexpr bool kFits = requires(N& node) { node.other; };
  template <typename N>
  static OwnOutcome run(N& node, OwnCall& call) {
    at::Tensor& gradient = call.gradients[0];
    if (!is_plain(gradient)) return OwnOutcome::kOddGradient;
    if (is_large(gradient.numel())) return OwnOutcome::kLarge;
    Factor factor;
    if (gradient.dim() == 0) return OwnOutcome::kOddShape;
    if (!factor.read(node.other) || factor.is_nan()) return OwnOutcome::kOddValue;
    call.results[0] = kWith(gradient, factor, true);
    return OwnOutcome::kRan;
  }
};

// The gradient and one saved tensor of its sizes go through a kernel, which may multiply them.
template <bool kMultiplies = true, typename Kernel>
OwnOutcome with_saved(OwnCall& call, const SavedVariable& saved, Kernel&& kernel) {
  at::Tensor& gradient = call.gradients[0];
  if (!is_plain(gradient)) return OwnOutcome::kOddGradient;
  if (is_large(gradient.numel())) return OwnOutcome::kLarge;
  const std::lock_guard<std::mutex> lock(host::mutex_of(call.node));
  const at::Tensor* x = host::read_saved(saved);
  if (x == nullptr || !is_plain(*x) || !same_sizes_and_type(*x, gradient)) return OwnOutcome::kOddSaved;
  if (kMultiplies && has_nan(gradient)) return OwnOutcome::kNaN;
  call.results[0] = map(gradient, true, [&](auto* out, const auto* g, int64_t n) {
    kernel(out, g, data_of<std::remove_pointer_t<decltype(out)>>(*x), n);
  });
  return OwnOutcome::kRan;
}

template <typename N>
constexpr bool kSavesResult = requires(N& node) { host::read_saved(node.result_); };
template <typename N>
constexpr bool kSavesSelf = requires(N& node) { host::read_saved(node.self_); };

#define OVERDRIVE_KERNEL(name) \
  [](auto* out, const auto* g, const auto* x, int64_t n) { kernels::loops(out).name(out, g, x, n); }

struct Relu {
  template <typename N>
  static constexpr bool kFits = kSavesResult<N>;
  static OwnOutcome run(ReluBackward0& node, OwnCall& call) {
    return with_saved<false>(call, node.result_, OVERDRIVE_KERNEL(relu_backward));
  }
};
struct Sigmoid {
  template <typename N>
  static constexpr bool kFits = kSavesResult<N>;
  static OwnOutcome run(SigmoidBackward0& node, OwnCall& call) {
    return with_saved(call, node.result_, OVERDRIVE_KERNEL(sigmoid_backward));
  }
};
struct Exp {
  template <typename N>
  static constexpr bool kFits = kSavesResult<N>;
  static OwnOutcome run(ExpBackward0& node, OwnCall& call) {
    return with_saved(call, node.result_, OVERDRIVE_KERNEL(multiply));
  }
};
struct Sqrt {
  template <typename N>
  static constexpr bool kFits = kSavesResult<N>;
  static OwnOutcome run(SqrtBackward0& node, OwnCall& call) {
    return with_saved<false>(call, node.result_, OVERDRIVE_KERNEL(sqrt_backward));
  }
};
struct Log {
  template <typename N>
  static constexpr bool kFits = kSavesSelf<N>;
  static OwnOutcome run(LogBackward0& node, OwnCall& call) {
    return with_saved<false>(call, node.self_, OVERDRIVE_KERNEL(divide));
  }
};
struct Pow {
  template <typename N>
  static constexpr bool kFits = kSavesSelf<N> && requires(N& node) { node.exponent; };
  static OwnOutcome run(PowBackward0& node, OwnCall& call) {
    const at::Scalar& exponent = node.exponent;
    if (exponent.isSymbolic() || exponent.isComplex()) return OwnOutcome::kOddValue;
    if (exponent.toDouble() == 2) return with_saved(call, node.self_, OVERDRIVE_KERNEL(square_backward));
    if (exponent.toDouble() == 3) return with_saved(call, node.self_, OVERDRIVE_KERNEL(cube_backward));
    return OwnOutcome::kOddValue;
  }
};
#undef OVERDRIVE_KERNEL

// The host's kernel, which contracts 1 - y * y where the processor can.
struct Tanh {
  template <typename N>
  static constexpr bool kFits = kSavesResult<N>;
  static OwnOutcome run(TanhBackward0& node, OwnCall& call) {
    at::Tensor& gradient = call.gradients[0];
    if (!is_plain(gradient)) return OwnOutcome::kOddGradient;
    const std::lock_guard<std::mutex> lock(host::mutex_of(node));
    const at::Tensor* y = host::read_saved(node.result_);
    if (y == nullptr || !is_plain(*y) || !same_sizes_and_type(*y, gradient)) return OwnOutcome::kOddSaved;
    if (may_be_written(gradient)) {
      at::cpu::tanh_backward_outf(gradient, *y, gradient);
      call.results[0] = std::move(gradient);
    } else {
      call.results[0] = at::cpu::tanh_backward(gradient, *y);
    }
    return OwnOutcome::kRan;
  }
};

}  // namespace

void add_elementwise(Table& table) {
  table.add<AddBackward0, Add>("AddBackward0");
  table.add<AddBackward1, PassOn<AddBackward1>>("AddBackward1");
  table.add<SubBackward0, Sub>("SubBackward0");
  table.add<SubBackward1, PassOn<SubBackward1>>("SubBackward1");
  table.add<NegBackward0, Neg>("NegBackward0");
  table.add<MulBackward0, Mul>("MulBackward0");
  table.add<MulBackward1, WithScalar<times>>("MulBackward1");
  table.add<DivBackward0, Div>("DivBackward0");
  table.add<DivBackward1, WithScalar<over>>("DivBackward1");
  table.add<ReluBackward0, Relu>("ReluBackward0");
  table.add<SigmoidBackward0, Sigmoid>("SigmoidBackward0");
  table.add<TanhBackward0, Tanh>("TanhBackward0");
  table.add<ExpBackward0, Exp>("ExpBackward0");
  table.add<LogBackward0, Log>("LogBackward0");
  table.add<SqrtBackward0, Sqrt>("SqrtBackward0");
  table.add<PowBackward0, Pow>("PowBackward0");
  table.add<CloneBackward0, PassOn<CloneBackward0>>("CloneBackward0");
}

}  // namespace overdrive::engine::own
