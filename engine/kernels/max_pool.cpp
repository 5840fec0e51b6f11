#include "engine/kernels/max_pool.h"

#include <algorithm>
#include <limits>
#include <type_traits>

namespace overdrive::kernels {

namespace {

// Windows side by side that are looked at together: element by element of the window, so that the inner loop
// has no branch and is vectorised.
constexpr int64_t kWindows = 64;

template <typename T>
struct Best {
  // As wide as an element.
  using Place = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  T value[kWindows];
  Place place[kWindows];
};

// One element of each window: elements from `next` on, `step` apart.
template <typename T>
void look_at(Best<T>& best, int64_t begin, int64_t end, const T* next, int64_t place, int64_t step) {
  using Place = typename Best<T>::Place;
  T* const values = best.value;
  Place* const places = best.place;
  const Place first = static_cast<Place>(place), apart = static_cast<Place>(step);
  for (int64_t i = begin; i < end; ++i) {
    const T value = next[(i - begin) * step], known = values[i];
    const Place known_place = places[i], new_place = first + static_cast<Place>(i - begin) * apart;
    const bool wins = (value > known) | (value != value);
    values[i] = wins ? value : known;
    places[i] = wins ? new_place : known_place;
  }
}

// Some windows of one row of the result.
template <typename T>
void pool_windows(T* out, int64_t* places, const T* plane, const PoolShape& shape, int64_t row, int64_t begin,
                  int64_t count) {
  Best<T> best;
  const int64_t top = row * shape.step_down - shape.pad_top, first_row = std::max<int64_t>(top, 0),
                last_row = std::min(top + shape.window_height, shape.height), step = shape.step_right;
  for (int64_t i = 0; i < count; ++i) {
    best.value[i] = -std::numeric_limits<T>::infinity();
    const int64_t left = std::max<int64_t>((begin + i) * step - shape.pad_left, 0);
    best.place[i] = static_cast<typename Best<T>::Place>(first_row * shape.width + left);
  }
  for (int64_t y = first_row; y < last_row; ++y) {
    for (int64_t k = 0; k < shape.window_width; ++k) {
      // Of window i it is the column i * step + from.
      const int64_t from = begin * step - shape.pad_left + k;
      const int64_t first = from < 0 ? (-from + step - 1) / step : 0;
      const int64_t last = from < shape.width ? std::min((shape.width - 1 - from) / step + 1, count) : 0;
      if (first >= last) continue;
      const int64_t place = y * shape.width + from + first * step;
      if (step == 1) {
        look_at(best, first, last, plane + place, place, 1);
      } else if (step == 2) {
        look_at(best, first, last, plane + place, place, 2);
      } else {
        look_at(best, first, last, plane + place, place, step);
      }
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    out[i] = best.value[i];
    places[i] = best.place[i];
  }
}

}  // namespace

template <typename T>
void max_pool(T* out, int64_t* places, const T* plane, const PoolShape& shape) {
  for (int64_t row = 0; row < shape.out_height; ++row) {
    for (int64_t begin = 0; begin < shape.out_width; begin += kWindows) {
      const int64_t count = std::min(kWindows, shape.out_width - begin), at = row * shape.out_width + begin;
      pool_windows(out + at, places + at, plane, shape, row, begin, count);
    }
  }
}

template void max_pool(float*, int64_t*, const float*, const PoolShape&);
template void max_pool(double*, int64_t*, const double*, const PoolShape&);

}  // namespace overdrive::kernels
