// The largest element of each window of a plane, and its place. The rule is LibTorch's: a later element wins
// when it is larger or a NaN. No state, any thread. Knows no tensor. Instantiated for float and double.
#pragma once

#include <cstdint>

namespace overdrive::replay {

// Windows without dilation that begin inside the plane or its padding and end inside the plane, its padding or
// beyond.
struct PoolShape {
  int64_t height, width;
  int64_t out_height, out_width;
  int64_t window_height, window_width;
  int64_t step_down, step_right;
  int64_t pad_top, pad_left;
};

// Writes out_height * out_width elements and their places, counted from the plane's first element.
template <typename T>
void max_pool(T* out, int64_t* places, const T* plane, const PoolShape& shape);

}  // namespace overdrive::replay
