// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <type_traits>

#include "ops/windows.h"
#include "src/base/parallel.h"
#include "src/kernels/map/map.h"

#ifdef WEFT_COMPILES_KERNELS
#include "src/device/kernel/launch.h"
#endif

namespace weft {
inline namespace WEFT_COMPILER {

// Functors of a plane and a position in the whole, which compute one element of a result.

template <class T> using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T> struct MaxOfWindow {
  Pool pool;
  const T* x;
  T* y;
  int64_t* indices;

  WEFT_FN void operator()(int64_t plane, int64_t a, int64_t b, int64_t c) const {
    using C = Wide<T>;
    const T* from = x + plane * pool.image.count();
    C most = -std::numeric_limits<C>::infinity();
    int64_t at = -1;
    pool.each_line(a, b, c, [&](int64_t i, int64_t j, const Places& places) {
      const T* line = from + pool.image.at(i, j, 0);
      const int64_t number = pool.number(i, j, 0);
      if (at < 0) at = number + places.first;
      for (int64_t k = places.first; k < places.last; k += places.step) {
        const C value = static_cast<C>(line[k]);
        const bool is_greater = (value > most) | (value != value);
        most = is_greater ? value : most;
        at = is_greater ? number + k : at;
      }
    });
    const int64_t to = plane * pool.results.count() + pool.results.at(a, b, c);
    y[to] = static_cast<T>(most);
    indices[to] = at;
  }
};

/// The sum of the elements of a line: of long ones in lanes, which are vectors.
template <class C, class T> WEFT_FN C sum_of_line(const T* line, const Places& places) {
  constexpr int kLanes = 16;
  C sum = 0;
  int64_t k = places.first;
  if (places.step == 1 && places.last - k >= kLanes) {
    C lanes[kLanes] = {};
    for (; k + kLanes <= places.last; k += kLanes) {
      for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += static_cast<C>(line[k + lane]);
    }
    for (const C lane : lanes) sum += lane;
  }
  for (; k < places.last; k += places.step) sum += static_cast<C>(line[k]);
  return sum;
}

template <class T> struct MeanOfWindow {
  Pool pool;
  const T* x;
  T* y;

  WEFT_FN void operator()(int64_t plane, int64_t a, int64_t b, int64_t c) const {
    using C = Wide<T>;
    const T* from = x + plane * pool.image.count();
    C sum = 0;
    const Places is = pool.elements_of(0, a), js = pool.elements_of(1, b);
    const Places ks = pool.elements_of(2, c);
    const int64_t width = pool.image.size[2];
    if (js.step == 1 && ks.step == 1 && ks.last - ks.first == width) {
      // Whole lines lie next to each other.
      const Places lines = {0, (js.last - js.first) * width, 1};
      for (int64_t i = is.first; i < is.last; i += is.step) {
        sum += sum_of_line<C>(from + pool.image.at(i, js.first, ks.first), lines);
      }
    } else {
      for (int64_t i = is.first; i < is.last; i += is.step) {
        for (int64_t j = js.first; j < js.last; j += js.step) {
          sum += sum_of_line<C>(from + pool.image.at(i, j, 0), ks);
        }
      }
    }
    y[plane * pool.results.count() + pool.results.at(a, b, c)] =
        static_cast<T>(sum / static_cast<C>(pool.divisor_of(a, b, c)));
  }
};

template <class T> struct MeanToImage {
  Pool pool;
  const T* y;
  T* x;

  WEFT_FN void operator()(int64_t plane, int64_t i, int64_t j, int64_t k) const {
    using C = Wide<T>;
    const T* from = y + plane * pool.results.count();
    C sum = 0;
    pool.each_window(i, j, k, [&](int64_t a, int64_t b, int64_t c) {
      sum +=
          static_cast<C>(from[pool.results.at(a, b, c)]) / static_cast<C>(pool.divisor_of(a, b, c));
    });
    x[plane * pool.image.count() + pool.image.at(i, j, k)] = static_cast<T>(sum);
  }
};

template <class T> struct MaxToImage {
  Pool pool;
  const T* y;
  const int64_t* indices;
  T* x;

  WEFT_FN void operator()(int64_t plane, int64_t i, int64_t j, int64_t k) const {
    using C = Wide<T>;
    const int64_t begin = plane * pool.results.count(), own = pool.number(i, j, k);
    C sum = 0;
    pool.each_window(i, j, k, [&](int64_t a, int64_t b, int64_t c) {
      const int64_t at = begin + pool.results.at(a, b, c);
      if (indices[at] == own) sum += static_cast<C>(y[at]);
    });
    x[plane * pool.image.count() + pool.image.at(i, j, k)] = static_cast<T>(sum);
  }
};

template <class T> struct PickedOfWindow {
  Pool pool;
  const T* x;
  const int64_t* indices;
  T* y;

  WEFT_FN void operator()(int64_t plane, int64_t a, int64_t b, int64_t c) const {
    const int64_t to = plane * pool.results.count() + pool.results.at(a, b, c);
    const int64_t lines = greatest(1, pool.dims[1].size), size = greatest(1, pool.dims[2].size);
    const int64_t number = indices[to], k = number % size;
    const int64_t j = number / size % lines, i = number / size / lines;
    const bool inside =
        has(pool.dims[0], a, i) && has(pool.dims[1], b, j) && has(pool.dims[2], c, k);
    y[to] = inside ? x[plane * pool.image.count() + pool.image.at(i, j, k)] : T(0.0f);
  }
};

#ifdef WEFT_COMPILES_KERNELS
template <class Functor> struct EachPlace {
  Functor functor;
  Planes over;

  WEFT_DEVICE void operator()(const cuda::Thread& thread) const {
    const int64_t all = functor.pool.planes * over.count();
    for (int64_t n = thread.index; n < all; n += thread.count) {
      const int64_t k = n % over.size[2], j = n / over.size[2] % over.size[1];
      const int64_t i = n / over.size[2] / over.size[1] % over.size[0];
      functor(n / over.count(), over.offset[0] + i, over.offset[1] + j, over.offset[2] + k);
    }
  }
};
#endif

/// Calls the functor for each place of `over` in each plane.
template <class Functor>
void each_place([[maybe_unused]] Device device, Functor functor, const Planes& over) {
#ifdef WEFT_COMPILES_KERNELS
  if (device.kind == DeviceKind::cuda) {
    return cuda::launch(EachPlace<Functor>{functor, over}, functor.pool.planes * over.count(),
                        current_stream(device));
  }
#endif
  if (functor.pool.planes * over.count() == 0) return;
  const WindowTables tables(functor.pool);
  const int64_t rows = functor.pool.planes * over.size[0];
  parallel_for(rows, grain_of(over.size[1] * over.size[2] * 8), [&](int64_t begin, int64_t end) {
    const Functor own = functor;
    for (int64_t row = begin; row < end; ++row) {
      const int64_t plane = row / over.size[0], i = over.offset[0] + row % over.size[0];
      for (int64_t j = 0; j < over.size[1]; ++j) {
        for (int64_t k = 0; k < over.size[2]; ++k) {
          own(plane, i, over.offset[1] + j, over.offset[2] + k);
        }
      }
    }
  });
}

}  // namespace WEFT_COMPILER
}  // namespace weft
