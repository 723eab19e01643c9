// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

/// What a new tensor is besides its shape.
struct TensorOptions {
  DType dtype = DType::f32;
  Device device = cpu;
  /// Each rank makes its own part only; random values are those of the whole tensor's.
  Sharding sharding = {};
};

WEFT_API Tensor empty(const Shape& shape, const TensorOptions& options = {});
WEFT_API Tensor zeros(const Shape& shape, const TensorOptions& options = {});
WEFT_API Tensor ones(const Shape& shape, const TensorOptions& options = {});
WEFT_API Tensor full(const Shape& shape, double value, const TensorOptions& options = {});
WEFT_API Tensor zeros_like(const Tensor& a);
WEFT_API Tensor ones_like(const Tensor& a);
/// 0, 1, ..., n - 1.
WEFT_API Tensor arange(int64_t n, const TensorOptions& options = {.dtype = DType::i64});
/// start, start + step, ... below stop (above it for a negative step); integer dtypes take whole
/// numbers.
WEFT_API Tensor arange(double start, double stop, double step = 1,
                       const TensorOptions& options = {});
/// `n` numbers evenly from start to stop, which is the last one when `endpoint`, and would be the
/// next otherwise.
WEFT_API Tensor linspace(double start, double stop, int64_t n, bool endpoint = true,
                         const TensorOptions& options = {});
/// [n, m] of zeros, with ones where column - row is `diagonal`.
WEFT_API Tensor eye(int64_t n, int64_t m, int64_t diagonal = 0, const TensorOptions& options = {});
/// Values [shape] in row-major order; each rank gives the whole, or, where it is a Partial, its own
/// addends.
WEFT_API Tensor from_values(std::span<const double> values, const Shape& shape,
                            const TensorOptions& options = {});

/// Evenly in [low, high); the mean and standard deviation of a normal distribution. Each call takes
/// the next stream of the rank's random state.
WEFT_API Tensor uniform(const Shape& shape, double low = 0, double high = 1,
                        const TensorOptions& options = {});
WEFT_API Tensor normal(const Shape& shape, double mean = 0, double deviation = 1,
                       const TensorOptions& options = {});
/// Integers in [low, high), each as often; at most 2^32 of them, which the dtype holds.
/// std::invalid_argument otherwise, and for a floating dtype.
WEFT_API Tensor randint(const Shape& shape, int64_t low, int64_t high,
                        const TensorOptions& options = {.dtype = DType::i64});
inline Tensor randn(const Shape& shape, const TensorOptions& options = {}) {
  return normal(shape, 0, 1, options);
}

// In place, on the memory of `a`, with NoGrad for leaves.
/// Every element of the whole is `value`, of a Partial too.
WEFT_API void fill_(const Tensor& a, double value);
WEFT_API void copy_(const Tensor& to, const Tensor& from);
/// copy_ between a GPU and pinned host memory (Storage::allocate_pinned) that is queued only: the
/// host's memory is read or written when the GPU's current stream comes to it. Dense tensors of one
/// rank, of one shape; std::invalid_argument otherwise. On one device it is copy_.
WEFT_API void transfer_(const Tensor& to, const Tensor& from);
WEFT_API void uniform_(const Tensor& a, double low, double high);
WEFT_API void normal_(const Tensor& a, double mean, double deviation);

}  // namespace weft
