// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/convolution/convolution.h"

#include <algorithm>
#include <optional>

#include "src/base/numeric.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/matmul/gemm.h"

#ifdef WEFT_WITH_ONEDNN
#include "src/kernels/convolution/onednn.h"
#endif

namespace weft {

/// `block` with a dim reduced to `count` elements from `first` on, one every `step`.
static void take_some(MemoryBlock& block, int dim, int64_t first, int64_t count, int64_t step) {
  if (count > 0) {
    block.data = element_at(block.data, first * block.strides[dim], block.dtype);
  }
  block.shape[dim] = count;
  block.strides[dim] *= step;
}

/// Element `i` of the first dim of a block.
static MemoryBlock item_of(MemoryBlock block, int64_t i) {
  block.data = element_at(block.data, i * block.strides[0], block.dtype);
  block.shape.erase(0);
  block.strides.erase(0);
  return block;
}

/// A dense block with other dims of the same number of elements.
static MemoryBlock viewed(const MemoryBlock& block, const Shape& shape) {
  return dense_block(block.data, block.dtype, shape, block.device);
}

static int64_t product_of(const Shape& shape, int first) {
  int64_t product = 1;
  for (int d = first; d < shape.ndim(); ++d) product *= shape[d];
  return product;
}

Reached reached(const Taps& taps, int d, int64_t tap, int64_t results, int64_t size) {
  const auto at = static_cast<size_t>(d);
  const int64_t stride = taps.stride[at], shift = tap * taps.dilation[at] - taps.before[at];
  const int64_t first = std::clamp<int64_t>(ceil_quotient(-shift, stride), 0, results);
  const int64_t last = std::clamp(floor_quotient(size - 1 - shift, stride) + 1, first, results);
  return {first, last - first, first * stride + shift};
}

namespace {

/// The matrix whose product with a filter is a convolution: for each channel of `from` and each
/// tap, the elements that the places of the product read; 0 outside of `from`.
class Columns {
 public:
  /// `places`: of results, if `from` is an image; with `to_image`, of an image, and `from` is a
  /// result.
  Columns(const Taps& taps, const Shape& filter, const MemoryBlock& from, const Shape& places,
          bool to_image)
      : taps_(taps), to_image_(to_image), channels_(from.shape[1]), from_(from) {
    Shape shape{channels_};
    for (int d = 0; d < taps.ndim; ++d) {
      filter_.push_back(filter[d + 2]);
      shape.push_back(filter[d + 2]);
    }
    for (int d = 0; d < taps.ndim; ++d) shape.push_back(places[d + 2]);
    if (is_direct(places)) return;
    memory_.emplace(shape, from.dtype, from.device);
    // The places that no tap reaches are equal for all items.
    fill(memory_->block, 0);
  }

  /// The matrix of item `n`: [groups, channels of a group * taps, places].
  MemoryBlock of(int64_t n) {
    const MemoryBlock item = item_of(from_, n);
    if (memory_) each_tap(item);
    const MemoryBlock& whole = memory_ ? memory_->block : item;
    const int64_t rows = channels_ * filter_.product() / taps_.groups;
    return viewed(whole,
                  {taps_.groups, rows, whole.numel() / std::max<int64_t>(1, rows * taps_.groups)});
  }

 private:
  /// True when the item itself is the matrix.
  bool is_direct(const Shape& places) const {
    bool direct = from_.is_dense();
    for (int d = 0; d < taps_.ndim; ++d) {
      const auto at = static_cast<size_t>(d);
      direct = direct && filter_[d] == 1 && taps_.stride[at] == 1 && taps_.before[at] == 0 &&
               places[d + 2] == from_.shape[d + 2];
    }
    return direct;
  }

  void each_tap(const MemoryBlock& item) {
    const int64_t count = filter_.product();
    for (int64_t i = 0; i < count; ++i) {
      MemoryBlock to = memory_->block, from = item;
      int64_t rest = i;
      std::array<int64_t, 3> tap{};
      for (int d = taps_.ndim - 1; d >= 0; --d) {
        tap[static_cast<size_t>(d)] = rest % filter_[d];
        rest /= filter_[d];
      }
      // Leaves [channels, places...] of the matrix.
      for (int d = 0; d < taps_.ndim; ++d) {
        to.data = element_at(to.data, tap[static_cast<size_t>(d)] * to.strides[1], to.dtype);
        to.shape.erase(1);
        to.strides.erase(1);
      }
      copy_tap(to, from, tap);
    }
  }

  void copy_tap(MemoryBlock& to, MemoryBlock& from, const std::array<int64_t, 3>& tap) const {
    MemoryBlock& result = to_image_ ? from : to;
    MemoryBlock& image = to_image_ ? to : from;
    for (int d = 0; d < taps_.ndim; ++d) {
      const auto at = static_cast<size_t>(d);
      const Reached r = reached(taps_, d, tap[at], result.shape[d + 1], image.shape[d + 1]);
      take_some(result, d + 1, r.first, r.count, 1);
      take_some(image, d + 1, r.begin, r.count, taps_.stride[at]);
    }
    if (to.numel() > 0) copy(to, from);
  }

  const Taps& taps_;
  bool to_image_;
  int64_t channels_;
  MemoryBlock from_;
  Shape filter_;
  std::optional<DenseMemory> memory_;
};

}  // namespace

/// The results of one item by group: [groups, channels of a group, places].
static MemoryBlock by_group(const Taps& taps, const MemoryBlock& block, int64_t n) {
  const MemoryBlock item = item_of(block, n);
  return viewed(item, {taps.groups, item.shape[0] / taps.groups, product_of(item.shape, 1)});
}

/// [groups, o, c, taps...] of a filter [groups o, c, taps...].
static MemoryBlock filter_by_group(const Taps& taps, const MemoryBlock& filter) {
  Shape shape = filter.shape;
  shape[0] /= taps.groups;
  shape.insert(0, taps.groups);
  return viewed(filter, shape);
}

void convolve(const Taps& taps, const MemoryBlock& image, const MemoryBlock& filter,
              const MemoryBlock& result) {
  if (result.numel() == 0) return;
  if (filter.numel() == 0) return fill(result, 0);
  const bool by_lines = taps.skips_zeros || image.dtype == DType::f64;
  if (by_lines && convolve_planes(taps, image, filter, result)) return;
#ifdef WEFT_WITH_ONEDNN
  if (convolve_by_onednn(Convolved::result, taps, image, filter, result)) return;
#endif
  Columns columns(taps, filter.shape, image, result.shape, false);
  const MemoryBlock rows =
      viewed(filter, {taps.groups, filter.shape[0] / taps.groups, product_of(filter.shape, 1)});
  for (int64_t n = 0; n < result.shape[0]; ++n) {
    gemm(rows, columns.of(n), by_group(taps, result, n));
  }
}

void convolve_to_image(const Taps& taps, const MemoryBlock& result, const MemoryBlock& filter,
                       const MemoryBlock& image) {
  if (image.numel() == 0) return;
  if (filter.numel() == 0) return fill(image, 0);
#ifdef WEFT_WITH_ONEDNN
  if (convolve_by_onednn(Convolved::image, taps, image, filter, result)) return;
#endif
  Columns columns(taps, filter.shape, result, image.shape, true);
  // [groups, c, o taps]
  const MemoryBlock turned = exchanged(filter_by_group(taps, filter), 1, 2);
  const DenseBlock dense = DenseBlock::of(turned);
  const MemoryBlock rows = viewed(
      dense, {taps.groups, turned.shape[1], filter.numel() / (taps.groups * turned.shape[1])});
  for (int64_t n = 0; n < image.shape[0]; ++n) {
    gemm(rows, columns.of(n), by_group(taps, image, n));
  }
}

void convolve_to_filter(const Taps& taps, const MemoryBlock& result, const MemoryBlock& image,
                        const MemoryBlock& filter) {
  if (filter.numel() == 0) return;
  if (result.numel() == 0) return fill(filter, 0);
#ifdef WEFT_WITH_ONEDNN
  if (convolve_by_onednn(Convolved::filter, taps, image, filter, result)) return;
#endif
  Columns columns(taps, filter.shape, image, result.shape, false);
  // Sums over items of halves are of f32.
  const bool widens = size_of(filter.dtype) == 2;
  std::optional<DenseMemory> wide;
  if (widens) wide.emplace(filter.shape, DType::f32, filter.device);
  const MemoryBlock& sum = widens ? wide->block : filter;
  const MemoryBlock rows =
      viewed(sum, {taps.groups, filter.shape[0] / taps.groups, product_of(filter.shape, 1)});
  for (int64_t n = 0; n < result.shape[0]; ++n) {
    gemm(by_group(taps, result, n), transposed(columns.of(n)), rows, n > 0 ? 1 : 0);
  }
  if (widens) copy(filter, sum);
}

}  // namespace weft
