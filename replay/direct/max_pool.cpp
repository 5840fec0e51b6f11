#include "replay/direct/max_pool.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

namespace overdrive::replay {

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

// Four windows of two by two, side by side.
using Values = float __attribute__((vector_size(16)));
using Places = int32_t __attribute__((vector_size(16)));
using WidePlaces = int64_t __attribute__((vector_size(32)));

struct Four {
  Values value;
  Places place;

  void look_at(Values next, Places next_place) {
    const Places wins = (next > value) | (next != next);
    value = wins ? next : value;
    place = wins ? next_place : place;
  }
};

template <typename Vector, typename T>
Vector loaded(const T* from) {
  Vector vector;
  std::memcpy(&vector, from, sizeof(vector));
  return vector;
}

// Windows of two by two that touch neither each other nor the edges: the usual case. The first element of a
// window is known from the start, as it wins against nothing or has the place that nothing has.
void pool_row_of_squares(float* out, int64_t* places, const float* upper, int64_t width, int64_t place,
                         int64_t count) {
  const float* lower = upper + width;
  const auto below = static_cast<int32_t>(width);
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const auto a = loaded<Values>(upper + 2 * i), b = loaded<Values>(upper + 2 * i + 4),
               c = loaded<Values>(lower + 2 * i), d = loaded<Values>(lower + 2 * i + 4);
    const Places first = static_cast<int32_t>(place + 2 * i) + Places{0, 2, 4, 6};
    Four best{__builtin_shufflevector(a, b, 0, 2, 4, 6), first};
    best.look_at(__builtin_shufflevector(a, b, 1, 3, 5, 7), first + 1);
    best.look_at(__builtin_shufflevector(c, d, 0, 2, 4, 6), first + below);
    best.look_at(__builtin_shufflevector(c, d, 1, 3, 5, 7), first + below + 1);
    const auto wide = __builtin_convertvector(best.place, WidePlaces);
    std::memcpy(out + i, &best.value, sizeof(best.value));
    std::memcpy(places + i, &wide, sizeof(wide));
  }
  for (; i < count; ++i) {
    float value = upper[2 * i];
    int64_t at = place + 2 * i;
    const auto look_at = [&](float next, int64_t next_place) {
      const bool wins = (next > value) | (next != next);
      value = wins ? next : value;
      at = wins ? next_place : at;
    };
    look_at(upper[2 * i + 1], place + 2 * i + 1);
    look_at(lower[2 * i], place + 2 * i + width);
    look_at(lower[2 * i + 1], place + 2 * i + width + 1);
    out[i] = value;
    places[i] = at;
  }
}

bool are_squares(const PoolShape& shape) {
  return shape.window_height == 2 && shape.window_width == 2 && shape.step_down == 2 && shape.step_right == 2 &&
         shape.pad_top == 0 && shape.pad_left == 0 && 2 * shape.out_height <= shape.height &&
         2 * shape.out_width <= shape.width;
}

}  // namespace

template <typename T>
void max_pool(T* out, int64_t* places, const T* plane, const PoolShape& shape) {
  if constexpr (std::is_same_v<T, float>) {
    for (int64_t row = 0; are_squares(shape) && row < shape.out_height; ++row) {
      const int64_t at = row * shape.out_width, place = 2 * row * shape.width;
      pool_row_of_squares(out + at, places + at, plane + place, shape.width, place, shape.out_width);
    }
    if (are_squares(shape)) return;
  }
  for (int64_t row = 0; row < shape.out_height; ++row) {
    for (int64_t begin = 0; begin < shape.out_width; begin += kWindows) {
      const int64_t count = std::min(kWindows, shape.out_width - begin), at = row * shape.out_width + begin;
      pool_windows(out + at, places + at, plane, shape, row, begin, count);
    }
  }
}

template void max_pool(float*, int64_t*, const float*, const PoolShape&);
template void max_pool(double*, int64_t*, const double*, const PoolShape&);

}  // namespace overdrive::replay
