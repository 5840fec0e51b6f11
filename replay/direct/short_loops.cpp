#include "engine/kernels/elementwise.h"
#include "replay/direct/direct_step.h"

namespace overdrive::replay {

namespace {

// LibTorch's way to its loop costs more than so many elements. Longer loops are as fast there.
constexpr int64_t kShort = 2048;

bool is_like(const at::Tensor& tensor, const at::Tensor& out) {
  return tensor.is_contiguous() && tensor.sizes() == out.sizes() && tensor.scalar_type() == out.scalar_type() &&
         !tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

// A product of two NaNs is LibTorch's to make: its sign goes by the place in the array.
template <typename T>
Step product(Step otherwise, const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  auto other = std::make_shared<Step>(std::move(otherwise));
  return step_of([other, to = out.mutable_data_ptr<T>(), x = a.const_data_ptr<T>(), y = b.const_data_ptr<T>(),
                  n = out.numel(), &loops = kernels::loops<T>()] {
    if (loops.has_nan(x, n)) return (*other)();
    loops.multiply(to, x, y, n);
  });
}

template <typename T>
Step sum_in_place(const at::Tensor& out, const at::Tensor& b) {
  return step_of([to = out.mutable_data_ptr<T>(), from = b.const_data_ptr<T>(), n = out.numel(),
                  &loops = kernels::loops<T>()] { loops.add(to, to, from, n); });
}

}  // namespace

std::optional<Step> direct_short_loop(DirectCall& call) {
  const bool is_product = call.name == "mul";
  if ((!is_product && call.name != "add") || !call.has_tensor(0) || !call.has_tensor(1)) return std::nullopt;
  const at::Tensor &a = call.tensor(0), &b = call.tensor(1), &out = call.out;
  if (out.numel() > kShort || !out.is_contiguous() || !is_like(a, out) || !is_like(b, out)) return std::nullopt;
  const bool is_float = out.scalar_type() == at::kFloat;
  if (is_product) {
    auto otherwise = direct_elementwise(call);
    if (!otherwise) return std::nullopt;
    return is_float ? product<float>(std::move(*otherwise), out, a, b)
                    : product<double>(std::move(*otherwise), out, a, b);
  }
  if (a.const_data_ptr() != out.const_data_ptr() || !call.has_scalar(2) ||
      !call.constant(2).toScalar().equal(1)) {
    return std::nullopt;
  }
  return is_float ? sum_in_place<float>(out, b) : sum_in_place<double>(out, b);
}

}  // namespace overdrive::replay
