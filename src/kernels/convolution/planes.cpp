// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "src/base/numeric.h"
#include "src/base/parallel.h"
#include "src/kernels/convolution/convolution.h"

namespace weft {

namespace {

/// A tap of one channel, with what the results along the last dim read through it.
template <class T> struct PlaneTap {
  std::array<int64_t, 3> shift;
  Reached last;
  T weight;
};

/// An image, a filter or a result of one channel, as three dims behind batch and channels.
struct Planes3 {
  int64_t size[3] = {1, 1, 1}, stride[3] = {0, 0, 0};
  explicit Planes3(const MemoryBlock& block) {
    const int ndim = block.shape.ndim() - 2;
    for (int d = 0; d < ndim; ++d) {
      size[3 - ndim + d] = block.shape[d + 2];
      stride[3 - ndim + d] = block.strides[d + 2];
    }
  }
};

}  // namespace

/// The same taps with one before each missing dim.
static Taps of_three_dims(const Taps& taps) {
  Taps all{.ndim = 3, .groups = taps.groups, .skips_zeros = taps.skips_zeros};
  for (int d = 0; d < taps.ndim; ++d) {
    const auto from = static_cast<size_t>(d), to = static_cast<size_t>(3 - taps.ndim + d);
    all.stride[to] = taps.stride[from];
    all.dilation[to] = taps.dilation[from];
    all.before[to] = taps.before[from];
  }
  return all;
}

template <class T>
static std::vector<PlaneTap<T>> taps_of(const Taps& taps, const T* weights, const Planes3& filter,
                                        const Planes3& image, const Planes3& result) {
  std::vector<PlaneTap<T>> all;
  for (int64_t n = 0; n < filter.size[0] * filter.size[1] * filter.size[2]; ++n) {
    if (taps.skips_zeros && weights[n] == T(0)) continue;
    const int64_t tap[3] = {n / filter.size[2] / filter.size[1],
                            n / filter.size[2] % filter.size[1], n % filter.size[2]};
    PlaneTap<T> made{{}, reached(taps, 2, tap[2], result.size[2], image.size[2]), weights[n]};
    for (size_t d = 0; d < 3; ++d) made.shift[d] = tap[d] * taps.dilation[d] - taps.before[d];
    all.push_back(made);
  }
  return all;
}

/// One line of results: the sum over taps of lines of the image.
template <class T>
static void add_lines(const Taps& taps, const std::vector<PlaneTap<T>>& all, const Planes3& image,
                      const T* from, int64_t t0, int64_t t1, T* to) {
  const int64_t step = taps.stride[2] * image.stride[2];
  for (const PlaneTap<T>& tap : all) {
    const int64_t i = t0 * taps.stride[0] + tap.shift[0], j = t1 * taps.stride[1] + tap.shift[1];
    if (i < 0 || i >= image.size[0] || j < 0 || j >= image.size[1]) continue;
    const T* line = from + i * image.stride[0] + j * image.stride[1];
    line += tap.last.count > 0 ? tap.last.begin * image.stride[2] : 0;
    T* out = to + tap.last.first;
    const T weight = tap.weight;
    if (step == 1) {
      for (int64_t k = 0; k < tap.last.count; ++k) out[k] += weight * line[k];
    } else {
      for (int64_t k = 0; k < tap.last.count; ++k) out[k] += weight * line[k * step];
    }
  }
}

template <class T>
static void convolve_lines(const Taps& given, const MemoryBlock& image, const MemoryBlock& filter,
                           const MemoryBlock& result) {
  const Taps taps = of_three_dims(given);
  const Planes3 from(image), weights(filter), to(result);
  const int64_t channels = result.shape[1], count = to.size[0] * to.size[1] * to.size[2];
  const int64_t of_filter = weights.size[0] * weights.size[1] * weights.size[2];
  for (int64_t plane = 0; plane < result.shape[0] * channels; ++plane) {
    const int64_t channel = plane % channels;
    const auto all = taps_of(taps, filter.as<T>() + channel * of_filter, weights, from, to);
    const T* in = image.as<T>() + plane / channels * image.strides[0] + channel * image.strides[1];
    T* out = result.as<T>() + plane * count;
    parallel_for(to.size[0] * to.size[1], grain_of(to.size[2] * static_cast<int64_t>(all.size())),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t line = begin; line < end; ++line) {
                     T* own = out + line * to.size[2];
                     std::fill_n(own, to.size[2], T(0));
                     add_lines(taps, all, from, in, line / to.size[1], line % to.size[1], own);
                   }
                 });
  }
}

bool convolve_planes(const Taps& taps, const MemoryBlock& image, const MemoryBlock& filter,
                     const MemoryBlock& result) {
  const bool is_single = filter.shape[1] == 1 && filter.shape[0] == image.shape[1];
  if (!is_single || image.device.kind == DeviceKind::cuda) return false;
  if (image.dtype == DType::f64) {
    convolve_lines<double>(taps, image, filter, result);
  } else if (image.dtype == DType::f32) {
    convolve_lines<float>(taps, image, filter, result);
  } else {
    return false;
  }
  return true;
}

}  // namespace weft
