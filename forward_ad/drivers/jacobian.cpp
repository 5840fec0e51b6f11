#include "engine/base/generator_states.h"
#include "forward_ad/drivers/driver_functions.h"
#include "forward_ad/drivers/reverse.h"
#include "forward_ad/layers/layers.h"
#include "forward_ad/rules/rules.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <utility>

namespace overdrive::forward_ad::detail {
namespace {
int64_t total_numel(const Tensors& tensors) {
  int64_t total = 0;
  for (const at::Tensor& tensor : tensors) total += tensor.numel();
  return total;
}

std::vector<int64_t> joined(at::IntArrayRef a, at::IntArrayRef b) {
  std::vector<int64_t> sizes(a.begin(), a.end());
  sizes.insert(sizes.end(), b.begin(), b.end());
  return sizes;
}

void check_real_outputs(const Tensors& outputs) {
  for (const at::Tensor& output : outputs) {
    TORCH_CHECK(output.is_floating_point(),
                "jacrev: the outputs must be real floating point tensors, but one has ", "dtype ",
                output.dtype(), ". Take its real and imaginary parts (at::view_as_real).");
  }
}

// Directions begin..end of the space of all elements of the tensors, one per row: row r of list entry k is that
// tensor's part of direction begin + r.
Tensors unit_directions(const Tensors& like, int64_t begin, int64_t end) {
  Tensors directions;
  int64_t first = 0;
  for (const at::Tensor& tensor : like) {
    at::Tensor part = at::zeros({end - begin, tensor.numel()}, tensor.options());
    int64_t lo = std::max(begin, first), hi = std::min(end, first + tensor.numel());
    if (lo < hi) part.narrow(0, lo - begin, hi - lo).narrow(1, lo - first, hi - lo).diagonal().fill_(1);
    directions.push_back(part.view(joined({end - begin}, tensor.sizes())));
    first += tensor.numel();
  }
  return directions;
}

bool is_about_vmap(const c10::Error& error) {
  return error.msg().find("vmap") != std::string::npos || error.msg().find("atching rule") != std::string::npos;
}

// Maps each direction: with one run on a vmap layer, or in a loop when an operator cannot be vectorised. The
// first such error of a Jacobian decides for the rest.
class RowByRow {
 public:
  RowByRow(const char* driver, bool vectorize) : driver_(driver), vectorize_(vectorize) {}

  // `map` takes directions to a list of results; gives these with the rows as dimension 0.
  template <typename Map>
  Tensors run(const Tensors& directions, const Map& map) {
    int64_t rows = directions[0].size(0);
    if (vectorize_ && rows > 1) {
      try {
        return vectorized(directions, rows, map);
      } catch (const c10::Error& error) {
        if (!is_about_vmap(error)) throw;
        vectorize_ = false;
        TORCH_WARN(driver_, ": computing one direction at a time, since the function cannot be vectorised: ",
                   error.msg());
      }
    }
    return looped(directions, rows, map);
  }

 private:
  template <typename Map>
  static Tensors vectorized(const Tensors& directions, int64_t rows, const Map& map) {
    const rules::IncludedHere rules;  // some replace LibTorch's rules of vmap
    VmapLayer layer(rows);
    Tensors hidden;
    for (const at::Tensor& direction : directions) hidden.push_back(layer.wrap(direction));
    Tensors results = map(hidden);
    for (at::Tensor& result : results) result = layer.unwrap(result);
    return results;
  }

  template <typename Map>
  static Tensors looped(const Tensors& directions, int64_t rows, const Map& map) {
    std::vector<Tensors> by_result;
    for (int64_t row = 0; row < rows; ++row) {
      Tensors one;
      for (const at::Tensor& direction : directions) one.push_back(direction.select(0, row));
      Tensors results = map(one);
      by_result.resize(results.size());
      for (size_t i = 0; i < results.size(); ++i) by_result[i].push_back(std::move(results[i]));
    }
    Tensors stacked;
    for (const Tensors& rows_of_one : by_result) stacked.push_back(at::stack(rows_of_one));
    return stacked;
  }

  const char* driver_;
  bool vectorize_;
};

// Maps all directions in chunks; gives each result with all directions as dimension 0.
template <typename Map>
Tensors in_chunks(const char* driver, const Tensors& like, const JacobianOptions& options, const Map& map) {
  int64_t count = total_numel(like);
  int64_t chunk = options.chunk_size.value_or(std::max<int64_t>(count, 1));
  TORCH_CHECK(chunk > 0, driver, ": chunk_size must be at least 1, but is ", chunk, ".");
  RowByRow rows(driver, options.vectorize);
  std::vector<Tensors> by_result;
  for (int64_t begin = 0; begin < count; begin += chunk) {
    Tensors results = rows.run(unit_directions(like, begin, std::min(begin + chunk, count)), map);
    by_result.resize(results.size());
    for (size_t i = 0; i < results.size(); ++i) by_result[i].push_back(std::move(results[i]));
  }
  Tensors whole;
  for (const Tensors& chunks : by_result) whole.push_back(chunks.size() == 1 ? chunks[0] : at::cat(chunks));
  return whole;
}

}  // namespace

Jacobian jacfwd(const Function& f, const Tensors& given, const JacobianOptions& options) {
  check_differentiable("jacfwd", given, /*real=*/true);
  const InferenceModeExit exit;
  const Tensors inputs = exit.usable(given);
  Jacobian result;
  bool first = true;
  // Each run draws what the first drew.
  auto numbers = base::GeneratorStates::of_devices_in_use(inputs);
  auto push = [&](const Tensors& tangents) {
    numbers.restore();  // a run by vmap may have drawn, and then failed
    Jvp r = jvp(f, inputs, tangents);
    // The values do not depend on the direction; keep the first, before a layer above goes.
    if (std::exchange(first, false)) {
      result.output = std::move(r.output);
      numbers.keep_what_moved();
    }
    return std::move(r.tangents);
  };
  Tensors columns = in_chunks("jacfwd", inputs, options, push);
  if (columns.empty()) {  // no elements, no directions: only the shapes are asked for
    Tensors nowhere;
    for (const at::Tensor& input : inputs) nowhere.push_back(at::zeros_like(input));
    for (const at::Tensor& tangent : push(nowhere)) columns.push_back(tangent.unsqueeze(0).narrow(0, 0, 0));
  }
  for (const at::Tensor& column : columns) {
    at::Tensor last = column.movedim(0, -1);
    auto out_sizes = column.sizes().slice(1);
    Tensors row;
    int64_t offset = 0;
    for (const at::Tensor& input : inputs) {
      at::Tensor part = last.narrow(-1, offset, input.numel()).reshape(joined(out_sizes, input.sizes()));
      // The derivative of whole numbers and truth values is zero, and has the input's type.
      row.push_back(is_differentiable(part) ? part : part.to(input.scalar_type()));
      offset += input.numel();
    }
    result.jacobian.push_back(std::move(row));
  }
  return result;
}

Jacobian jacrev(const Function& f, const Tensors& given, const JacobianOptions& options) {
  check_differentiable("jacrev", given, /*real=*/true);
  const InferenceModeExit exit;
  const Tensors inputs = exit.usable(given);
  Vjp r = vjp(f, inputs);
  Jacobian result{std::move(r.output), {}};
  const Tensors& outputs = result.output.values;
  Tensors continuous;
  for (const at::Tensor& output : outputs) {
    if (is_differentiable(output)) continuous.push_back(output);
  }
  check_real_outputs(continuous);
  auto pull = [&](const Tensors& cotangents) {
    Tensors all;
    for (size_t i = 0, next = 0; i < outputs.size(); ++i)
      all.push_back(is_differentiable(outputs[i]) ? cotangents[next++] : at::Tensor());
    return r.pullback(all);
  };
  Tensors rows = in_chunks("jacrev", continuous, options, pull);
  int64_t offset = 0;
  for (const at::Tensor& output : outputs) {
    const bool is_zero = rows.empty() || !is_differentiable(output);
    Tensors row;
    for (size_t i = 0; i < inputs.size(); ++i) {
      auto sizes = joined(output.sizes(), inputs[i].sizes());
      row.push_back(is_zero ? at::zeros(sizes, inputs[i].options())
                            : rows[i].narrow(0, offset, output.numel()).reshape(sizes));
    }
    if (is_differentiable(output)) offset += output.numel();
    result.jacobian.push_back(std::move(row));
  }
  return result;
}

Jacobian hessian(const Function& f, const Tensors& inputs, const JacobianOptions& options) {
  check_differentiable("hessian", inputs, /*real=*/true);
  auto gradients = [&](const Tensors& at) -> Output {
    Jacobian r = jacrev(f, at, options);
    return {std::move(r.jacobian[0]), std::move(r.output.aux)};
  };
  return jacfwd(gradients, inputs, options);
}

}  // namespace overdrive::forward_ad::detail
