// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "ops/convolution.h"
#include "src/base/numeric.h"

namespace weft {

// Windows of images, for both devices.

inline namespace WEFT_COMPILER {

struct WindowDim {
  int64_t kernel = 1, stride = 1, padding = 0, dilation = 1, size = 1, count = 1;
};
/// first, first + step, ... before last.
struct Places {
  int64_t first, last, step;
};

inline WEFT_FN int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline WEFT_FN int64_t greatest(int64_t a, int64_t b) { return a > b ? a : b; }

/// The elements of window `t` that lie in the image.
inline WEFT_FN Places window(const WindowDim& dim, int64_t t) {
  if (dim.kernel == 0) {
    return {t * dim.size / dim.count, ((t + 1) * dim.size + dim.count - 1) / dim.count, 1};
  }
  int64_t first = t * dim.stride - dim.padding;
  const int64_t last = first + (dim.kernel - 1) * dim.dilation + 1;
  if (first < 0) first += (-first + dim.dilation - 1) / dim.dilation * dim.dilation;
  return {first, least(last, dim.size), dim.dilation};
}

/// From the first element of a window to the last, in the padding too: later windows begin and end
/// later, which the elements of dilated windows that lie in the image do not.
inline Places reach_of(const WindowDim& dim, int64_t t) {
  if (dim.kernel == 0) return window(dim, t);
  const int64_t first = t * dim.stride - dim.padding;
  return {first, first + (dim.kernel - 1) * dim.dilation + 1, 1};
}

/// The windows among which are those that have element `s`.
inline WEFT_FN Places windows_of(const WindowDim& dim, int64_t s) {
  if (dim.kernel == 0) {
    return {s * dim.count / dim.size, ((s + 1) * dim.count + dim.size - 1) / dim.size, 1};
  }
  const int64_t end = s + dim.padding, begin = end - (dim.kernel - 1) * dim.dilation;
  const int64_t first = begin <= 0 ? 0 : (begin + dim.stride - 1) / dim.stride;
  return {first, least(dim.count, end / dim.stride + 1), 1};
}

inline WEFT_FN bool has(const WindowDim& dim, int64_t t, int64_t s) {
  const Places at = window(dim, t);
  return s >= at.first && s < at.last && (s - at.first) % at.step == 0;
}

/// A local part of an image or of results: planes of three dims.
struct Planes {
  int64_t offset[kImageDims] = {0, 0, 0}, size[kImageDims] = {1, 1, 1};

  WEFT_FN int64_t count() const { return size[0] * size[1] * size[2]; }
  /// The place of an element, by its position in the whole.
  WEFT_FN int64_t at(int64_t i, int64_t j, int64_t k) const {
    return ((i - offset[0]) * size[1] + j - offset[1]) * size[2] + k - offset[2];
  }
};

/// Returns the divisor of a result of a mean along one dim.
inline WEFT_FN int64_t count_of(const WindowDim& dim, int64_t t, bool counts_padding) {
  if (counts_padding && dim.kernel > 0) {
    const int64_t first = t * dim.stride - dim.padding;
    return least(first + dim.kernel, dim.size + dim.padding) - first;
  }
  const Places places = window(dim, t);
  return greatest(1, places.last - places.first);
}

struct Pool {
  WindowDim dims[kImageDims];
  Planes image, results;
  bool counts_padding = false;
  int64_t divisor = 0, planes = 0;
  /// The same by dim, if they are known: the windows of the local results, their counts, and the
  /// windows of the local elements.
  const Places* windows[kImageDims] = {};
  const int64_t* counts[kImageDims] = {};
  const Places* windows_with[kImageDims] = {};

  WEFT_FN Places elements_of(int d, int64_t t) const {
    return windows[d] ? windows[d][t - results.offset[d]] : window(dims[d], t);
  }
  WEFT_FN Places windows_at(int d, int64_t s) const {
    return windows_with[d] ? windows_with[d][s - image.offset[d]] : windows_of(dims[d], s);
  }
  WEFT_FN int64_t count_at(int d, int64_t t) const {
    return counts[d] ? counts[d][t - results.offset[d]] : count_of(dims[d], t, counts_padding);
  }
  /// True when window `t` has element `s`, which it is near.
  WEFT_FN bool meets(int d, int64_t t, int64_t s) const {
    return dims[d].dilation == 1 || has(dims[d], t, s);
  }

  WEFT_FN int64_t number(int64_t i, int64_t j, int64_t k) const {
    return (i * dims[1].size + j) * dims[2].size + k;
  }
  WEFT_FN int64_t divisor_of(int64_t a, int64_t b, int64_t c) const {
    return divisor != 0 ? divisor : count_at(0, a) * count_at(1, b) * count_at(2, c);
  }
  /// Calls f(i, j, ks) with the lines of elements of a window.
  template <class F> WEFT_FN void each_line(int64_t a, int64_t b, int64_t c, const F& f) const {
    const Places x = elements_of(0, a), y = elements_of(1, b), z = elements_of(2, c);
    for (int64_t i = x.first; i < x.last; i += x.step) {
      for (int64_t j = y.first; j < y.last; j += y.step) f(i, j, z);
    }
  }
  /// Calls f(a, b, c) with the windows that have an element.
  template <class F> WEFT_FN void each_window(int64_t i, int64_t j, int64_t k, const F& f) const {
    const Places x = windows_at(0, i), y = windows_at(1, j), z = windows_at(2, k);
    for (int64_t a = x.first; a < x.last; ++a) {
      if (!meets(0, a, i)) continue;
      for (int64_t b = y.first; b < y.last; ++b) {
        if (!meets(1, b, j)) continue;
        for (int64_t c = z.first; c < z.last; ++c) {
          if (meets(2, c, k)) f(a, b, c);
        }
      }
    }
  }
};

/// The places of windows along each dim, worked out once for all planes.
class WindowTables {
 public:
  explicit WindowTables(Pool& pool) {
    for (int d = 0; d < kImageDims; ++d) {
      for (int64_t t = 0; t < pool.results.size[d]; ++t) {
        const int64_t at = pool.results.offset[d] + t;
        windows_[d].push_back(window(pool.dims[d], at));
        counts_[d].push_back(count_of(pool.dims[d], at, pool.counts_padding));
      }
      for (int64_t s = 0; s < pool.image.size[d]; ++s) {
        windows_with_[d].push_back(windows_of(pool.dims[d], pool.image.offset[d] + s));
      }
      pool.windows[d] = windows_[d].data();
      pool.counts[d] = counts_[d].data();
      pool.windows_with[d] = windows_with_[d].data();
    }
  }

 private:
  std::vector<Places> windows_[kImageDims], windows_with_[kImageDims];
  std::vector<int64_t> counts_[kImageDims];
};

}  // namespace WEFT_COMPILER
}  // namespace weft
