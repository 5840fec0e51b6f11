#include "forward_ad/drivers/driver_functions.h"
#include "forward_ad/drivers/reverse.h"
#include "forward_ad/layers/layers.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace overdrive::forward_ad::detail {

namespace ft = at::functorch;

Grad grad(const char* driver, const Function& f, const Tensors& inputs) {
  check_differentiable(driver, inputs);
  Vjp r = vjp(f, inputs);
  const at::Tensor& value = r.output.values[0];
  TORCH_CHECK(
      value.dim() == 0 && value.is_floating_point(), driver,
      ": the function must return one real number, a tensor without dimensions, but returned one of dtype ",
      value.dtype(), " and shape ", value.sizes(), ". Take sum() or mean(), or use vjp or jacrev.");
  Tensors gradients = r.pullback({at::ones_like(value)});
  return {std::move(r.output), std::move(gradients)};
}

namespace {
ft::RandomnessType randomness_of(Randomness randomness) {
  switch (randomness) {
    case Randomness::kError:
      return ft::RandomnessType::Error;
    case Randomness::kDifferent:
      return ft::RandomnessType::Different;
    case Randomness::kSame:
      return ft::RandomnessType::Same;
  }
  TORCH_CHECK(false, "vmap: randomness is ", static_cast<int>(randomness),
              ", which is none of kError, kDifferent and kSame.");
}

// From 0 on.
int64_t dimension(const char* what, size_t index, int64_t dim, int64_t count) {
  TORCH_CHECK(dim >= -count && dim < count, "vmap: ", what, "[", index, "] is ", dim, ", but that tensor ",
              count == 0 ? "has no dimension to map over."
                         : c10::str("allows from ", -count, " to ", count - 1, " only."));
  return dim < 0 ? dim + count : dim;
}

VmapDims dims_of_inputs(const Tensors& inputs, const VmapOptions& options) {
  VmapDims dims = options.in_dims;
  if (dims.empty()) dims.assign(inputs.size(), 0);
  TORCH_CHECK(dims.size() == inputs.size(), "vmap: there are ", inputs.size(), " inputs but ", dims.size(),
              " in_dims. Give one for each, or none for dimension 0 of all.");
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i]) dims[i] = dimension("in_dims", i, *dims[i], inputs[i].dim());
  }
  return dims;
}

int64_t rows_of(const Tensors& inputs, const VmapDims& dims) {
  std::optional<size_t> first;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!dims[i]) continue;
    if (!first) first = i;
    TORCH_CHECK(inputs[i].size(*dims[i]) == inputs[*first].size(*dims[*first]), "vmap: input ", i, " has ",
                inputs[i].size(*dims[i]), " rows along dimension ", *dims[i], ", input ", *first, " has ",
                inputs[*first].size(*dims[*first]), " along dimension ", *dims[*first], ".");
  }
  TORCH_CHECK(first, "vmap: no input is mapped. Give one of them a dimension in in_dims.");
  return inputs[*first].size(*dims[*first]);
}

std::optional<int64_t> dim_of_output(const VmapOptions& options, size_t index, size_t count) {
  if (options.out_dims.empty()) return 0;
  TORCH_CHECK(options.out_dims.size() == 1 || options.out_dims.size() == count, "vmap: the function has ",
              count, " results, but there are ", options.out_dims.size(),
              " out_dims. Give one for each, one for all, or none for dimension 0.");
  return options.out_dims.size() == 1 ? options.out_dims[0] : options.out_dims[index];
}

// The results for all rows, and the dimension of the rows in each.
VmapResult run(const Function& f, const Tensors& inputs, const VmapDims& dims, int64_t rows,
               const VmapOptions& options) {
  VmapLayer layer(rows, randomness_of(options.randomness));
  Tensors hidden;
  for (size_t i = 0; i < inputs.size(); ++i)
    hidden.push_back(dims[i] ? layer.wrap(inputs[i], *dims[i]) : inputs[i]);
  VmapResult result;
  Output output = call("vmap", f, hidden);
  for (size_t i = 0; i < output.values.size(); ++i) {
    at::Tensor& value = output.values[i];
    std::optional<int64_t> dim = dim_of_output(options, i, output.values.size());
    TORCH_CHECK(dim || !layer.hides_one_of(value), "vmap: out_dims says that result ", i,
                " is the same for all rows, but it depends on them. Give it a dimension.");
    if (dim) dim = dimension("out_dims", i, *dim, value.dim() + 1);
    result.outputs.push_back(dim ? layer.unwrap(value, *dim) : std::move(value));
    result.out_dims.push_back(dim);
  }
  return result;
}

}  // namespace

Tensors vmap(const Function& f, const Tensors& inputs, const VmapOptions& options) {
  check_inputs("vmap", inputs);
  const VmapDims dims = dims_of_inputs(inputs, options);
  const int64_t rows = rows_of(inputs, dims), chunk = options.chunk_size.value_or(std::max<int64_t>(rows, 1));
  TORCH_CHECK(chunk > 0, "vmap: chunk_size must be at least 1, but is ", chunk, ".");
  if (chunk >= rows) return run(f, inputs, dims, rows, options).outputs;
  std::vector<Tensors> parts;
  VmapDims out_dims;
  for (int64_t begin = 0; begin < rows; begin += chunk) {
    const int64_t count = std::min(chunk, rows - begin);
    Tensors here = inputs;
    for (size_t i = 0; i < here.size(); ++i) {
      if (dims[i]) here[i] = here[i].narrow(*dims[i], begin, count);
    }
    VmapResult result = run(f, here, dims, count, options);
    parts.resize(result.outputs.size());
    for (size_t i = 0; i < parts.size(); ++i) parts[i].push_back(std::move(result.outputs[i]));
    out_dims = std::move(result.out_dims);
  }
  Tensors whole;
  for (size_t i = 0; i < parts.size(); ++i)
    whole.push_back(out_dims[i] ? at::cat(parts[i], *out_dims[i]) : parts[i].back());
  return whole;
}

}  // namespace overdrive::forward_ad::detail
