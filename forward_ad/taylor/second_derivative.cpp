#include "forward_ad/taylor/second_derivative.h"

#include "engine/base/generator_states.h"
#include "engine/base/no_destructor.h"
#include "forward_ad/drivers/driver_level.h"
#include "forward_ad/drivers/reverse.h"
#include "forward_ad/taylor/jet.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace overdrive::forward_ad::detail {
namespace {
constexpr const char* kName = "second_derivative";

void check_directions(const Tensors& inputs, const Tensors& directions) {
  TORCH_CHECK(inputs.size() == directions.size(), kName, ": there are ", inputs.size(), " inputs but ",
              directions.size(), " directions.");
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor &x = inputs[i], &v = directions[i];
    TORCH_CHECK(!v.defined() || (x.sizes() == v.sizes() && x.dtype() == v.dtype() && x.device() == v.device()),
                kName, ": direction ", i, " is a tensor of shape ", v.sizes(), ", ", v.dtype(), " on ",
                v.device(), ", but its input has shape ", x.sizes(), ", ", x.dtype(), " on ", x.device(),
                ". They must agree.");
  }
}

Second nested(const Function& f, const Tensors& inputs, const Tensors& directions, std::string because) {
  size_t count = 0;
  auto slopes = [&](const Tensors& points) -> Output {
    Jvp r = jvp(f, points, directions);
    count = r.output.values.size();
    Tensors aux = std::move(r.output.values);
    aux.insert(aux.end(), r.output.aux.begin(), r.output.aux.end());
    return {std::move(r.tangents), std::move(aux)};
  };
  Jvp r = jvp(slopes, inputs, directions);
  const auto end_of_values = r.output.aux.begin() + static_cast<std::ptrdiff_t>(count);
  Second result;
  result.output = {{r.output.aux.begin(), end_of_values}, {end_of_values, r.output.aux.end()}};
  result.first = std::move(r.output.values);
  result.second = std::move(r.tangents);
  result.nested_because = std::move(because);
  return result;
}

bool are_real(const Tensors& tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& tensor) { return tensor.is_floating_point(); });
}

// A pass over jets; its results keep their marks until the level ends.
Second run_pass(const Function& f, const Tensors& inputs, const Tensors& directions) {
  Tensors marked;
  for (size_t i = 0; i < inputs.size(); ++i)
    marked.push_back(directions[i].defined() ? taylor::input_of_pass(inputs[i], directions[i]) : inputs[i]);
  const taylor::Pass pass;
  Second result;
  result.output = call(kName, f, marked);
  for (const at::Tensor& value : result.output.values) {
    if (at::functorch::maybeGetTensorWrapper(value) != nullptr) taylor::give_up("a result belongs to a layer");
    const taylor::Derivatives* known = taylor::derivatives_of(value);
    result.first.push_back(known != nullptr ? known->first : at::Tensor());
    result.second.push_back(known != nullptr ? known->second : at::Tensor());
  }
  return result;
}

// Writes into a result must reach nothing else.
void give_memory_of_its_own(Second& result) {
  for (size_t i = 0; i < result.first.size(); ++i) {
    const at::Tensor& value = result.output.values[i];
    for (Tensors* list : {&result.first, &result.second}) {
      at::Tensor& part = (*list)[i];
      if (!part.defined()) {
        part = at::zeros_like(value);
      } else if (part.storage().use_count() > 1 || !part.is_non_overlapping_and_dense()) {
        part = part.clone();
      }
    }
  }
}

}  // namespace

Second second_derivative(const Function& f, const Tensors& inputs, const Tensors& directions) {
  check_differentiable(kName, inputs);
  check_directions(inputs, directions);
  const InferenceModeExit exit;
  const Tensors points = exit.usable(inputs), along = exit.usable(directions);
  if (!are_real(points)) return nested(f, points, along, "an input is complex");
  const auto numbers = base::GeneratorStates::of_devices_in_use(points);
  Second result;
  std::string given_up;
  {
    DriverLevel level(can_be_plain_duals(points) && can_be_plain_duals(along));
    if (!level.is_bare()) {
      given_up = "another level or a layer is around";
    } else {
      try {
        result = run_pass(f, points, along);
      } catch (...) {
        if (taylor::Pass::given_up_because().empty() || base::thread_is_ending()) throw;
      }
      given_up = taylor::Pass::given_up_because();  // also where the function caught the error
    }
  }
  if (!given_up.empty()) {
    result = {};
    numbers.restore();
    return nested(f, points, along, std::move(given_up));
  }
  leave_no_trace(result.output.values);
  leave_no_trace(result.output.aux);
  give_memory_of_its_own(result);
  return result;
}

}  // namespace overdrive::forward_ad::detail
