#include "replay/direct/direct_step.h"
#include "replay/direct/max_pool.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>

namespace overdrive::replay {

namespace {

struct Pair {
  int64_t down, right;
};

// One number for both directions, or two; none where LibTorch takes a default.
Pair pair_of(const c10::IValue& argument, Pair otherwise) {
  const auto list = argument.toIntVector();
  if (list.empty()) return otherwise;
  return {list.front(), list.back()};
}

std::optional<PoolShape> shape_of(DirectCall& call, const at::Tensor& in) {
  const Pair window = pair_of(call.constant(1), {1, 1}), step = pair_of(call.constant(2), window),
             pad = pair_of(call.constant(3), {0, 0}), dilation = pair_of(call.constant(4), {1, 1});
  if (dilation.down != 1 || dilation.right != 1) return std::nullopt;
  const PoolShape shape{.height = in.size(-2),
                        .width = in.size(-1),
                        .out_height = call.out.size(-2),
                        .out_width = call.out.size(-1),
                        .window_height = window.down,
                        .window_width = window.right,
                        .step_down = step.down,
                        .step_right = step.right,
                        .pad_top = pad.down,
                        .pad_left = pad.right};
  // Places within a plane are counted in as many bits as an element has.
  return shape.height * shape.width < std::numeric_limits<int32_t>::max() ? std::optional(shape) : std::nullopt;
}

template <typename T>
Step pool_step(const at::Tensor& out, const at::Tensor& places, const at::Tensor& in, const PoolShape& shape) {
  const int64_t in_plane = shape.height * shape.width, out_plane = shape.out_height * shape.out_width,
                planes = in.numel() / in_plane,
                grain = std::max<int64_t>(1, at::internal::GRAIN_SIZE / out_plane);
  return step_of([to = out.mutable_data_ptr<T>(), at_places = places.mutable_data_ptr<int64_t>(),
                  from = in.const_data_ptr<T>(), shape, in_plane, out_plane, planes, grain] {
    at::parallel_for(0, planes, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        max_pool(to + i * out_plane, at_places + i * out_plane, from + i * in_plane, shape);
      }
    });
  });
}

}  // namespace

std::optional<Step> direct_pooling(DirectCall& call) {
  if (call.name != "max_pool2d_with_indices" || call.op.out.size() != 2 || !call.op.out[1].is_tensor())
    return std::nullopt;
  const at::Tensor &in = call.tensor(0), &places = call.bound.tensor(call.op.out[1].values[0]);
  if (!in.is_contiguous() || !call.out.is_contiguous() || !places.is_contiguous() || in.numel() == 0 ||
      in.scalar_type() != call.out.scalar_type()) {
    return std::nullopt;
  }
  const auto shape = shape_of(call, in);
  if (!shape) return std::nullopt;
  return call.out.scalar_type() == at::kFloat ? pool_step<float>(call.out, places, in, *shape)
                                              : pool_step<double>(call.out, places, in, *shape);
}

}  // namespace overdrive::replay
