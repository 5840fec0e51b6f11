// Nodes whose gradient is the incoming one, element by element: passed on, negated, or times a derivative that
// one IEEE operation after the other gives. scaled.cpp has products with a factor.
#include "engine/kernels/elementwise.h"
#include "engine/native_nodes/factor.h"
#include "engine/native_nodes/map.h"
#include "engine/native_nodes/table.h"

#include <ATen/ops/tanh_backward_cpu_dispatch.h>
#include <torch/csrc/autograd/generated/Functions.h>

namespace overdrive::engine::native_nodes {
namespace {

using namespace torch::autograd::generated;
using torch::autograd::SavedVariable;

// The gradient goes on as it is, to one edge or to both.
template <typename N>
struct PassOn {
  template <typename>
  static constexpr bool kFits = true;
  static NativeOutcome run(N&, NativeCall& call) {
    at::Tensor& gradient = call.gradients[0];
    if (!is_strided(gradient)) return NativeOutcome::kOddGradient;
    if (!call.wants(0)) return NativeOutcome::kOddShape;
    call.results[0] = std::move(gradient);
    return NativeOutcome::kRan;
  }
};

struct Add {
  template <typename N>
  static constexpr bool kFits = requires(N& node) { node.alpha; };
  static NativeOutcome run(AddBackward0& node, NativeCall& call) {
    at::Tensor& gradient = call.gradients[0];
    if (!is_strided(gradient)) return NativeOutcome::kOddGradient;
    if (!is_one(node.alpha)) return NativeOutcome::kOddValue;
    const bool first = call.wants(0);
    if (call.wants(1)) call.results[1] = first ? gradient : std::move(gradient);
    if (first) call.results[0] = std::move(gradient);
    return NativeOutcome::kRan;
  }
};

struct Sub {
  template <typename N>
  static constexpr bool kFits = requires(N& node) { node.alpha; };
  static NativeOutcome run(SubBackward0& node, NativeCall& call) {
    at::Tensor& gradient = call.gradients[0];
    if (!is_plain(gradient)) return NativeOutcome::kOddGradient;
    if (!is_one(node.alpha)) return NativeOutcome::kOddValue;
    if (call.wants(1)) {
      if (is_large(gradient.numel())) return NativeOutcome::kLarge;
      call.results[1] = map(gradient, !call.wants(0),
                            [](auto* out, const auto* g, int64_t n) { kernels::loops(out).negate(out, g, n); });
    }
    if (call.wants(0)) call.results[0] = std::move(gradient);
    return NativeOutcome::kRan;
  }
};

struct Neg {
  template <typename N>
  static constexpr bool kFits = true;
  static NativeOutcome run(NegBackward0&, NativeCall& call) {
    at::Tensor& gradient = call.gradients[0];
    if (!is_plain(gradient)) return NativeOutcome::kOddGradient;
    if (is_large(gradient.numel())) return NativeOutcome::kLarge;
    call.results[0] =
        map(gradient, true, [](auto* out, const auto* g, int64_t n) { kernels::loops(out).negate(out, g, n); });
    return NativeOutcome::kRan;
  }
};

// The gradient and one saved tensor of its sizes go through a kernel, which may multiply them.
template <bool kMultiplies = true, typename Kernel>
NativeOutcome with_saved(NativeCall& call, const SavedVariable& saved, Kernel&& kernel) {
  at::Tensor& gradient = call.gradients[0];
  if (!is_plain(gradient)) return NativeOutcome::kOddGradient;
  if (is_large(gradient.numel())) return NativeOutcome::kLarge;
  const std::lock_guard<std::mutex> lock(host::mutex_of(call.node));
  const at::Tensor* x = host::read_saved(saved);
  if (x == nullptr || !is_plain(*x) || !same_sizes_and_type(*x, gradient)) return NativeOutcome::kOddSaved;
  if (kMultiplies && has_nan(gradient)) return NativeOutcome::kNaN;
  call.results[0] = map(gradient, true, [&](auto* out, const auto* g, int64_t n) {
    kernel(out, g, data_of<std::remove_pointer_t<decltype(out)>>(*x), n);
  });
  return NativeOutcome::kRan;
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
  static NativeOutcome run(ReluBackward0& node, NativeCall& call) {
    return with_saved<false>(call, node.result_, OVERDRIVE_KERNEL(relu_backward));
  }
};
struct Sigmoid {
  template <typename N>
  static constexpr bool kFits = kSavesResult<N>;
  static NativeOutcome run(SigmoidBackward0& node, NativeCall& call) {
    return with_saved(call, node.result_, OVERDRIVE_KERNEL(sigmoid_backward));
  }
};
struct Exp {
  template <typename N>
  static constexpr bool kFits = kSavesResult<N>;
  static NativeOutcome run(ExpBackward0& node, NativeCall& call) {
    return with_saved(call, node.result_, OVERDRIVE_KERNEL(multiply));
  }
};
struct Sqrt {
  template <typename N>
  static constexpr bool kFits = kSavesResult<N>;
  static NativeOutcome run(SqrtBackward0& node, NativeCall& call) {
    return with_saved<false>(call, node.result_, OVERDRIVE_KERNEL(sqrt_backward));
  }
};
struct Log {
  template <typename N>
  static constexpr bool kFits = kSavesSelf<N>;
  static NativeOutcome run(LogBackward0& node, NativeCall& call) {
    return with_saved<false>(call, node.self_, OVERDRIVE_KERNEL(divide));
  }
};
struct Pow {
  template <typename N>
  static constexpr bool kFits = kSavesSelf<N> && requires(N& node) { node.exponent; };
  static NativeOutcome run(PowBackward0& node, NativeCall& call) {
    const at::Scalar& exponent = node.exponent;
    if (exponent.isSymbolic() || exponent.isComplex()) return NativeOutcome::kOddValue;
    if (exponent.toDouble() == 2) return with_saved(call, node.self_, OVERDRIVE_KERNEL(square_backward));
    if (exponent.toDouble() == 3) return with_saved(call, node.self_, OVERDRIVE_KERNEL(cube_backward));
    return NativeOutcome::kOddValue;
  }
};
#undef OVERDRIVE_KERNEL

// The host's kernel, which contracts 1 - y * y where the processor can.
struct Tanh {
  template <typename N>
  static constexpr bool kFits = kSavesResult<N>;
  static NativeOutcome run(TanhBackward0& node, NativeCall& call) {
    at::Tensor& gradient = call.gradients[0];
    if (!is_plain(gradient)) return NativeOutcome::kOddGradient;
    const std::lock_guard<std::mutex> lock(host::mutex_of(node));
    const at::Tensor* y = host::read_saved(node.result_);
    if (y == nullptr || !is_plain(*y) || !same_sizes_and_type(*y, gradient)) return NativeOutcome::kOddSaved;
    if (may_be_written(gradient)) {
      at::cpu::tanh_backward_outf(gradient, *y, gradient);
      call.results[0] = std::move(gradient);
    } else {
      call.results[0] = at::cpu::tanh_backward(gradient, *y);
    }
    return NativeOutcome::kRan;
  }
};

}  // namespace

void add_elementwise(Table& table) {
  table.add<AddBackward0, Add>("AddBackward0");
  table.add<AddBackward1, PassOn<AddBackward1>>("AddBackward1");
  table.add<SubBackward0, Sub>("SubBackward0");
  table.add<SubBackward1, PassOn<SubBackward1>>("SubBackward1");
  table.add<NegBackward0, Neg>("NegBackward0");
  table.add<ReluBackward0, Relu>("ReluBackward0");
  table.add<SigmoidBackward0, Sigmoid>("SigmoidBackward0");
  table.add<TanhBackward0, Tanh>("TanhBackward0");
  table.add<ExpBackward0, Exp>("ExpBackward0");
  table.add<LogBackward0, Log>("LogBackward0");
  table.add<SqrtBackward0, Sqrt>("SqrtBackward0");
  table.add<PowBackward0, Pow>("PowBackward0");
  table.add<CloneBackward0, PassOn<CloneBackward0>>("CloneBackward0");
}

}  // namespace overdrive::engine::native_nodes
