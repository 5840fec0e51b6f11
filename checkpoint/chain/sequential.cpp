#include "checkpoint/chain/sequential.h"

#include "checkpoint/chain/revolve.h"
#include "checkpoint/early/early.h"
#include "checkpoint/on_demand/on_demand.h"
#include "checkpoint/region/region.h"

#include <utility>

namespace overdrive::checkpoint {

namespace {

// The graph owns the layers that it will run again.
Layer part(const std::vector<Layer>& layers, size_t begin, size_t end) {
  return [part = std::vector<Layer>(layers.begin() + static_cast<int64_t>(begin),
                                    layers.begin() + static_cast<int64_t>(end))](at::Tensor value) {
    for (const Layer& layer : part) value = layer(value);
    return value;
  };
}

at::Tensor as_region(Layer layer, const at::Tensor& x, const Options& options) {
  const auto function = [layer = std::move(layer)](const Tensors& inputs) { return Tensors{layer(inputs[0])}; };
  return detail::checkpoint(function, {x}, options)[0];
}

at::Tensor by_segments(const std::vector<Layer>& layers, at::Tensor x, const Segments& schedule,
                       const Options& options) {
  size_t begin = 0;
  for (const int64_t length : even_parts(static_cast<int64_t>(layers.size()), schedule.count)) {
    const size_t end = begin + static_cast<size_t>(length);
    Layer layers_here = part(layers, begin, end);
    if (end == layers.size() && begin > 0) return layers_here(x);
    x = as_region(std::move(layers_here), x, options);
    begin = end;
  }
  return x;
}

at::Tensor by_policy(const std::vector<Layer>& layers, const at::Tensor& x, const Selective& schedule,
                     Options options) {
  TORCH_CHECK(schedule.policy != nullptr, "checkpoint_sequential: Selective needs a policy.");
  TORCH_CHECK(
      options.form != Form::kEarly,
      "checkpoint_sequential: Selective is of the form kOnDemand. For the early form use Segments or Revolve.");
  TORCH_CHECK(options.policy == nullptr && options.packer == nullptr,
              "checkpoint_sequential: policy and packer belong into Selective, not into Options.");
  options.form = Form::kOnDemand;
  options.policy = schedule.policy;
  options.packer = schedule.packer;
  return as_region(part(layers, 0, layers.size()), x, options);
}

}  // namespace

at::Tensor checkpoint_sequential(const std::vector<Layer>& layers, const at::Tensor& input,
                                 const ChainSchedule& schedule, const Options& options) {
  TORCH_CHECK(!layers.empty(),
              "checkpoint_sequential: there are no layers. An empty Sequential has no forward().");
  for (size_t i = 0; i < layers.size(); ++i) {
    TORCH_CHECK(layers[i] != nullptr, "checkpoint_sequential: layer ", i, " is an empty function.");
  }
  if (const auto* segments = std::get_if<Segments>(&schedule)) {
    return by_segments(layers, input, *segments, options);
  }
  if (const auto* selective = std::get_if<Selective>(&schedule)) {
    return by_policy(layers, input, *selective, options);
  }
  return run_with_revolve(layers, input, std::get<Revolve>(schedule).snapshots, options);
}

Tensors detail::checkpoint(Function fn, Tensors inputs, const Options& options) {
  const Form form = options.form.value_or(Form::kOnDemand);
  check_options("checkpointed", options, form);
  if (form == Form::kOnDemand) return run_on_demand(std::move(fn), inputs, options);
  Checkpointing region(std::move(fn), std::move(inputs), options);
  return region.recompute(region.checkpoint());
}

}  // namespace overdrive::checkpoint
