#include "forward_ad/drivers/reverse.h"

#include <c10/util/Exception.h>

#include <string>
#include <string_view>

namespace overdrive::forward_ad::detail {
namespace {
constexpr std::string_view kWayOut =
    " A torch::autograd::Function of C++ has no forward rule and no rule for layers. Derive it from "
    "overdrive::CustomJvp, with a rule, or from overdrive::DoubleVjp, without one, and call apply() as before.";

// LibTorch's own words, on a level without a layer and on a layer.
bool is_about_a_function(std::string_view text) {
  const bool theirs = text.find("jvp is not implemented for the c++ API of custom Function") != text.npos ||
                      text.find("cannot use C++ torch::autograd::Function") != text.npos;
  return theirs && text.find(kWayOut) == text.npos;
}

}  // namespace

void check_inputs(const char* driver, const Tensors& inputs) {
  TORCH_CHECK(!inputs.empty(), driver, ": the list of inputs is empty, so it has nothing to work on.");
  for (size_t i = 0; i < inputs.size(); ++i) {
    TORCH_CHECK(inputs[i].defined(), driver, ": input ", i,
                " is an undefined tensor. Leave it out of the inputs, ", "or give a tensor.");
  }
}

void check_differentiable(const char* driver, const Tensors& inputs, bool real) {
  check_inputs(driver, inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    TORCH_CHECK(real ? inputs[i].is_floating_point() : is_differentiable(inputs[i]), driver,
                ": the inputs must be ", real ? "real floating point" : "floating point or complex",
                " tensors, but input ", i, " has dtype ", inputs[i].dtype(),
                ". Convert it, or let the function capture what it is not differentiated with regard to.");
  }
}

Output call(const char* driver, const Function& f, const Tensors& inputs) {
  Output output;
  try {
    output = f(inputs);
  } catch (c10::Error& error) {
    if (!is_about_a_function(error.what_without_backtrace())) throw;
    TORCH_CHECK(false, driver, ": ", error.what_without_backtrace(), kWayOut);
  }
  TORCH_CHECK(!output.values.empty(), driver,
              ": the function returned an empty list. It must return a tensor.");
  for (size_t i = 0; i < output.values.size(); ++i) {
    TORCH_CHECK(output.values[i].defined(), driver, ": result ", i,
                " of the function is undefined. Return a tensor ",
                "in its place, or pass other results through by with_aux().");
  }
  return output;
}

}  // namespace overdrive::forward_ad::detail
