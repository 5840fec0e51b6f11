// Single functions.
//
// The faults. sinc: derivatives are those of a quotient, and zero at zero, where the second is -pi^2/3; near
// zero they are inexact. norm(x, p) of all elements: the tangent has too many dimensions. Bessel and Airy
// functions: LibTorch has no formula and calls them constant, so the tangent is zero; here a tangent is an
// error. (A fourth fault, the tangent of silu of complex numbers, is mended in rules/side_by_side_rules.cpp,
// because an operator can have one rule.)
#include "forward_ad/rules/repair.h"
#include "forward_ad/rules/rule_support.h"

#include <c10/util/MathConstants.h>

namespace overdrive::forward_ad::rules {
namespace {
using at::Tensor;
using c10::DispatchKeySet;

// Near zero by its power series.
Tensor sinc(DispatchKeySet keys, const Tensor& x) {
  if (!any_derivative(x)) return at::_ops::sinc::redispatch(keys & kBelow, x);
  Tensor angle = x * c10::pi<double>, is_near = angle.abs() < 1.5;
  Tensor square = angle.masked_fill(is_near.logical_not(), 0).square(), series = at::ones_like(square);
  for (int k = 12; k > 0; --k) series = 1 - series * square / (2 * k * (2 * k + 1));
  Tensor far = angle.masked_fill(is_near, 1);
  return at::where(is_near, series, far.sin() / far);
}

constexpr const char* kWithoutDerivative[] = {
    "special_airy_ai",
    "special_bessel_j0",
    "special_bessel_j1",
    "special_bessel_y0",
    "special_bessel_y1",
    "special_modified_bessel_i0",
    "special_modified_bessel_i1",
    "special_modified_bessel_k0",
    "special_modified_bessel_k1",
    "special_scaled_modified_bessel_k0",
    "special_scaled_modified_bessel_k1",
    "special_spherical_bessel_j0",
};

void refuse_tangents(const c10::OperatorHandle& op, DispatchKeySet keys, torch::jit::Stack* stack) {
  const Tensor& x = stack->back().toTensor();
  TORCH_CHECK(!any_tangent(x), op.schema().name(),
              " has no derivative in LibTorch, which would take it for a constant.");
  op.redispatchBoxed(keys & kBelow, stack);
}

Tensor norm_of_all(DispatchKeySet keys, const Tensor& self, const c10::Scalar& p) {
  if (!any_tangent(self)) return at::_ops::norm_Scalar::redispatch(keys & kBelow, self, p);
  return at::linalg_vector_norm(self, p);
}

// Of each function, whether its tangent is an error or more than zeros.
std::vector<Tensor> try_constants() {
  std::vector<Tensor> numbers;
  for (const char* name : kWithoutDerivative) {
    const auto call = [&](const Tensor& x) {
      torch::jit::Stack stack{x};
      c10::Dispatcher::singleton()
          .findSchemaOrThrow((std::string("aten::") + name).c_str(), "")
          .callBoxed(&stack);
      return stack.back().toTensor();
    };
    bool is_honest = true;
    try {
      const Tensor tangent = first_order(call, row(1, {2})).at(0);
      is_honest = tangent.defined() && tangent.ne(0).all().item<bool>();
    } catch (const c10::Error&) {
    }
    numbers.push_back(at::scalar_tensor(is_honest ? 1. : 0., at::kDouble));
  }
  return numbers;
}

}  // namespace

void list_function_repairs(std::vector<Repair>& list) {
  list.insert(
      list.end(),
      {
          {"derivatives of sinc at zero", [](torch::Library& table) { table.impl("sinc", TORCH_FN(sinc)); },
           [] { return second_order([](const Tensor& x) { return at::sinc(x); }, row(0, {3})); }},
          {"the shape of the tangent of a norm of all elements",
           [](torch::Library& table) { table.impl("norm.Scalar", TORCH_FN(norm_of_all)); },
           [] { return first_order([](const Tensor& x) { return at::norm(x, 2); }, row(1, {3})); }},
          {"functions without a formula that are taken for constants",
           [](torch::Library& table) {
             for (const char* name : kWithoutDerivative)
               table.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse_tangents>());
           },
           try_constants},
      });
}

}  // namespace overdrive::forward_ad::rules
