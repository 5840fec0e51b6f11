#include "checkpoint/sequential.h"

#include "checkpoint/checkpoint.h"
#include "checkpoint/revolve.h"

#include <utility>

namespace overdrive::checkpoint {

namespace {

at::Tensor by_segments(const std::vector<Layer>& layers, at::Tensor x, const Segments& schedule,
                       const Options& options) {
  size_t begin = 0;
  for (const int64_t length : even_parts(static_cast<int64_t>(layers.size()), schedule.count)) {
    const size_t end = begin + static_cast<size_t>(length);
    // The graph owns the layers that it will run again.
    auto part = [layers = std::vector<Layer>(layers.begin() + static_cast<int64_t>(begin),
                                             layers.begin() + static_cast<int64_t>(end))](at::Tensor value) {
      for (const Layer& layer : layers) value = layer(value);
      return value;
    };
    if (end == layers.size() && begin > 0) return part(std::move(x));
    x = checkpoint(options, std::move(part), x);
    begin = end;
  }
  return x;
}

}  // namespace

at::Tensor checkpoint_sequential(const std::vector<Layer>& layers, const at::Tensor& input,
                                 const Schedule& schedule, const Options& options) {
  if (layers.empty()) return input;
  if (const auto* segments = std::get_if<Segments>(&schedule)) {
    return by_segments(layers, input, *segments, options);
  }
  return run_with_revolve(layers, input, std::get<Revolve>(schedule).snapshots, options);
}

}  // namespace overdrive::checkpoint
