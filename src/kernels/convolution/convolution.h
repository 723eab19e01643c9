// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "weft/block.h"

namespace weft {

/// How a filter meets an image along each of `ndim` dims: tap j of result t reads element
/// t * stride + j * dilation - before of the image, 0 outside of it. `before` is negative where the
/// block begins after the first element that its results read.
struct Taps {
  int ndim = 0;
  int64_t groups = 1;
  std::array<int64_t, 3> stride{1, 1, 1}, dilation{1, 1, 1}, before{};
  /// Taps whose weight is 0 may be left out, even where they read infinities.
  bool skips_zeros = false;
};

/// The results along dim `d` whose tap `tap` lies within an image of `size` elements: `count` from
/// `first` on, which read from `begin` on, a stride apart.
struct Reached {
  int64_t first, count, begin;
};
Reached reached(const Taps& taps, int d, int64_t tap, int64_t results, int64_t size);

// Blocks: image [n, groups c, image...], filter [groups o, c, taps...], result [n, groups o,
// result...]; all but the image of `convolve` and `convolve_to_filter` are dense. They compute by
// `copy` and `gemm`, on either device; f32 and bf16 on the CPU by oneDNN where it is faster.

/// result = the products of filter and image, summed over c and the taps.
void convolve(const Taps& taps, const MemoryBlock& image, const MemoryBlock& filter,
              const MemoryBlock& result);
/// image = the gradient of `convolve` with respect to it, for the gradient `result`, of which any
/// elements are strided.
void convolve_to_image(const Taps& taps, const MemoryBlock& result, const MemoryBlock& filter,
                       const MemoryBlock& image);
/// filter = the gradient of `convolve` with respect to it.
void convolve_to_filter(const Taps& taps, const MemoryBlock& result, const MemoryBlock& image,
                        const MemoryBlock& filter);

/// Computes `convolve` on the CPU line by line, where each channel has a separate filter: f32 and
/// f64. Otherwise returns false.
bool convolve_planes(const Taps& taps, const MemoryBlock& image, const MemoryBlock& filter,
                     const MemoryBlock& result);

/// Returns the quotient of integers, rounded down; `b` is positive.
constexpr int64_t floor_quotient(int64_t a, int64_t b) { return a / b - (a % b < 0); }
constexpr int64_t ceil_quotient(int64_t a, int64_t b) { return -floor_quotient(-a, b); }

}  // namespace weft
