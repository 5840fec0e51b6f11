#include "checkpoint/sequential.h"

#include "checkpoint/checkpoint.h"
#include "checkpoint/revolve.h"

#include <utility>

namespace overdrive::checkpoint {

namespace {

at::Tensor by_segments(const std::vector<Layer>& layers, at::Tensor x, const Segments& schedule,
                       const Options& options) {
  const auto run = [&layers](size_t begin, size_t end, at::Tensor value) {
    for (size_t i = begin; i < end; ++i) value = layers[i](value);
    return value;
  };
  size_t begin = 0;
  for (const int64_t length : even_parts(static_cast<int64_t>(layers.size()), schedule.count)) {
    const size_t end = begin + static_cast<size_t>(length);
    if (end == layers.size() && begin > 0) return run(begin, end, std::move(x));
    // The graph owns the layers that it will run again.
    std::vector<Layer> part(layers.begin() + static_cast<int64_t>(begin),
                            layers.begin() + static_cast<int64_t>(end));
    x = checkpoint(
        options,
        [part = std::move(part)](at::Tensor value) {
          for (const Layer& layer : part) value = layer(value);
          return value;
        },
        x);
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
