// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/matmul/gemm.h"

#include "src/kernels/copy/copy.h"
#include "src/kernels/map/map.h"

namespace weft {

namespace {

/// Below this, torchao's bound, a tensor counts as zeros: the reciprocal stays finite.
constexpr double kLeastGreatest = 1e-12;

template <class T> WEFT_FN T scale_for(T greatest, float largest) {
  const T least = static_cast<T>(kLeastGreatest);
  return (greatest < least ? least : greatest) / static_cast<T>(largest);
}

/// The nearest number of 8 bits to x / scale, as T.
template <class Code> struct RoundToFloat8 {
  float largest;
  template <class T> WEFT_FN T operator()(T x, T greatest) const {
    const T scaled = x / scale_for(greatest, largest), most = static_cast<T>(largest);
    const T clamped = scaled > most ? most : scaled < -most ? -most : scaled;
    return static_cast<T>(static_cast<float>(Code(before_half(clamped))));
  }
};

struct TimesScales {
  float largest_a, largest_b;
  template <class T> WEFT_FN T operator()(T x, T greatest_a, T greatest_b) const {
    return x * (scale_for(greatest_a, largest_a) * scale_for(greatest_b, largest_b));
  }
};

struct AddTimesScales {
  TimesScales times;
  template <class T> WEFT_FN T operator()(T sum, T x, T greatest_a, T greatest_b) const {
    return sum + times(x, greatest_a, greatest_b);
  }
};

constexpr float kLargestE4M3 = 448, kLargestE5M2 = 57344;

/// Dense memory for the time of a product.
DenseMemory dense(const Shape& shape, DType dtype, Device device) {
  const PurposeScope purpose(Purpose::other);
  return {shape, dtype, device};
}

/// A block rounded to f8, stored as `dtype`.
DenseMemory rounded(const MemoryBlock& from, const MemoryBlock& greatest, bool is_gradient,
                    DType dtype) {
  DenseMemory to = dense(from.shape, dtype, from.device);
  if (is_gradient) {
    map_floating(RoundToFloat8<float8_e5m2>{kLargestE5M2}, to.block, from, greatest);
  } else {
    map_floating(RoundToFloat8<float8_e4m3>{kLargestE4M3}, to.block, from, greatest);
  }
  return to;
}

/// The transpose of a dense block whose leading dims are the rows of a matrix.
MemoryBlock turned_rows(const MemoryBlock& dense) {
  const int64_t columns = dense.shape.back();
  const int64_t rows = columns == 0 ? 0 : dense.numel() / columns;
  return transposed(dense_block(dense.data, dense.dtype, {rows, columns}, dense.device));
}

/// Multiplies the product by the scales into `out`, or adds it.
void store_scaled(const MemoryBlock& out, const MemoryBlock& product, LinearProduct kind,
                  const MemoryBlock& greatest_a, const MemoryBlock& greatest_b, bool accumulate) {
  const bool has_gradient = kind != LinearProduct::forward;
  const TimesScales times{has_gradient ? kLargestE5M2 : kLargestE4M3, kLargestE4M3};
  if (accumulate) {
    map_floating(AddTimesScales{times}, out, out, product, greatest_a, greatest_b);
  } else {
    map_floating(times, out, product, greatest_a, greatest_b);
  }
}

}  // namespace

/// cuBLASLt multiplies matrices of f8 that are dense along the dim that is summed.
void float8_product(LinearProduct kind, const MemoryBlock& out, const MemoryBlock& a,
                    const MemoryBlock& b, const MemoryBlock& greatest_a,
                    const MemoryBlock& greatest_b, bool accumulate) {
  const bool on_gpu = cuda::kWithCuda && are_on_gpu(out, a, b, greatest_a, greatest_b);
  const bool has_gradient = kind != LinearProduct::forward;
  const bool over_leading = kind == LinearProduct::weight_gradient, turns = on_gpu && over_leading;
  const DenseBlock dense_a = turns ? DenseBlock::of(a) : DenseBlock::as_it_is(a);
  const DenseBlock dense_b = turns ? DenseBlock::of(b) : DenseBlock::as_it_is(b);
  const MemoryBlock left_of = turns ? turned_rows(dense_a) : a;
  const bool turns_b = on_gpu && kind == LinearProduct::input_gradient;
  const MemoryBlock right_of = turns ? turned_rows(dense_b) : turns_b ? transposed(b) : b;
  const DType left_type = has_gradient ? DType::f8_e5m2 : DType::f8_e4m3;
  const DenseMemory left =
      rounded(left_of, greatest_a, has_gradient, on_gpu ? left_type : DType::f32);
  const DenseMemory right =
      rounded(right_of, greatest_b, false, on_gpu ? DType::f8_e4m3 : DType::f32);
  const DenseMemory product = dense(out.shape, DType::f32, out.device);
  if (over_leading && !on_gpu) {
    gemm_over_leading(left.block, right.block, product.block);
  } else {
    const bool by_rows = on_gpu || kind == LinearProduct::forward;
    gemm(left.block, by_rows ? transposed(right.block) : right.block, product.block);
  }
  store_scaled(out, product.block, kind, greatest_a, greatest_b, accumulate);
}

}  // namespace weft
