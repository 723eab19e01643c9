// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <initializer_list>
#include <iterator>
#include <ranges>
#include <type_traits>
#include <vector>

#include "weft/export.h"
#include "weft/number.h"
#include "weft/operand.h"
#include "weft/tensor.h"

namespace weft {

/// Properties of a new tensor other than its shape.
struct TensorOptions {
  DType dtype = DType::f32;
  Device device = cpu;
  /// Each rank makes only its own part; random values are those of the same elements of the whole
  /// tensor.
  Sharding sharding = {};
};

WEFT_API Tensor empty(const Shape& shape, const TensorOptions& options = {});
WEFT_API Tensor zeros(const Shape& shape, const TensorOptions& options = {});
WEFT_API Tensor ones(const Shape& shape, const TensorOptions& options = {});
WEFT_API Tensor full(const Shape& shape, const Number& value, const TensorOptions& options = {});
WEFT_API Tensor zeros_like(const Tensor& a);
WEFT_API Tensor ones_like(const Tensor& a);
/// 0, 1, ..., n - 1.
WEFT_API Tensor arange(int64_t n, const TensorOptions& options = {.dtype = DType::i64});
/// start, start + step, ... up to but without stop. For integer dtypes start and step must be whole
/// numbers; integers of 64 bits are exact.
WEFT_API Tensor arange(const Number& start, const Number& stop, const Number& step = 1,
                       const TensorOptions& options = {});
/// `n` evenly spaced numbers from start to stop. stop is the last one when `endpoint`; otherwise it
/// would be the next one.
WEFT_API Tensor linspace(double start, double stop, int64_t n, bool endpoint = true,
                         const TensorOptions& options = {});
/// [n, m] zeros, with ones where column - row is `diagonal`.
WEFT_API Tensor eye(int64_t n, int64_t m, int64_t diagonal = 0, const TensorOptions& options = {});
/// A 0-d tensor of `number` on a's device and mesh, in the dtype that `a` and the number promote
/// to.
WEFT_API Tensor number_like(const Tensor& a, const Number& number);

/// The dtype of the numbers of a C++ type.
template <class T>
requires(std::is_arithmetic_v<T> && sizeof(T) <= 8) constexpr DType dtype_of_number() {
  if (std::is_same_v<T, bool>) return DType::boolean;
  constexpr DType kSigned[] = {i8, i16, i32, i64}, kUnsigned[] = {u8, u16, u32, u64};
  constexpr int kSize = std::countr_zero(sizeof(T));
  if (std::is_floating_point_v<T>) return kSize == 2 ? f32 : f64;
  return (std::is_signed_v<T> ? kSigned : kUnsigned)[kSize];
}

/// Makes a tensor from `count` numbers of `dtype` in row-major order. Each rank passes the values
/// of the whole tensor or, for a Partial, its own addends.
WEFT_API Tensor from_values(const void* values, size_t count, DType dtype, const Shape& shape,
                            const TensorOptions& options);
/// The same from a vector, an array or a span of numbers; floating ones become f32 unless the
/// options say otherwise, others keep their dtype.
template <std::ranges::contiguous_range Values, class T = std::ranges::range_value_t<Values>>
Tensor from_values(const Values& values, const Shape& shape,
                   const TensorOptions& options = {
                       .dtype = std::is_floating_point_v<T> ? f32 : dtype_of_number<T>()}) {
  return from_values(std::data(values), std::size(values), dtype_of_number<T>(), shape, options);
}

/// The numbers of `Tensor::of`: one, or a list of numbers or of lists of equal shapes.
struct WEFT_API NestedNumbers {
  template <class T>
  requires std::is_arithmetic_v<T> NestedNumbers(T number)  // NOLINT(google-explicit-constructor)
      : values{Number(number)}, kind(Number(number).kind) {}
  /// std::invalid_argument for lists of different shapes.
  NestedNumbers(std::initializer_list<NestedNumbers> list);  // NOLINT(google-explicit-constructor)

  Shape shape;
  std::vector<Number> values;
  Number::Kind kind = Number::Kind::floating;
};

/// Random values: uniform in [low, high), or normal with this mean and standard deviation. Each
/// call uses the next stream of the rank's random state.
WEFT_API Tensor uniform(const Shape& shape, double low = 0, double high = 1,
                        const TensorOptions& options = {});
WEFT_API Tensor normal(const Shape& shape, double mean = 0, double deviation = 1,
                       const TensorOptions& options = {});
/// Integers in [low, high), all equally likely: at most 2^32 different ones, within the dtype's
/// range. std::invalid_argument otherwise, and for a floating dtype.
WEFT_API Tensor randint(const Shape& shape, int64_t low, int64_t high,
                        const TensorOptions& options = {.dtype = DType::i64});
inline Tensor randn(const Shape& shape, const TensorOptions& options = {}) {
  return normal(shape, 0, 1, options);
}

// Random tensors laid out as another one. The elements are the same for any layout.

/// Uniform in [0, 1), standard normal, and integers in [low, high), in shape and dtype of `a`.
WEFT_API Tensor rand_like(const Tensor& a);
WEFT_API Tensor randn_like(const Tensor& a);
WEFT_API Tensor randint_like(const Tensor& a, int64_t low, int64_t high);
/// 1 with the probability of the element, else 0.
WEFT_API Tensor bernoulli(const Tensor& probabilities);
/// 1 with probability p, else 0, in shape and dtype of `a`.
WEFT_API Tensor bernoulli(const Tensor& a, double p);
/// Normal values with these means and standard deviations, which broadcast.
WEFT_API Tensor normal(const Operand& mean, const Tensor& deviation);
WEFT_API Tensor normal(const Tensor& mean, double deviation = 1);
/// `count` indices (i64) of the last dim of `weights` [n] or [rows, n], drawn in proportion to the
/// weights, without replacement unless `replacement`: [count] or [rows, count].
WEFT_API Tensor multinomial(const Tensor& weights, int64_t count, bool replacement = false);

// Ops that change the memory of `a` in place. Leaves that require a gradient need NoGrad.

/// Sets every element of the whole tensor to `value`, also of a Partial.
WEFT_API void fill_(const Tensor& a, const Number& value);
/// `from` broadcasts to the shape of `to`.
WEFT_API void copy_(const Tensor& to, const Tensor& from);
/// Queues a copy_ between a GPU and pinned host memory (Storage::allocate_pinned): the host memory
/// is read or written when the GPU's current stream reaches the copy. Both tensors must be dense,
/// of one rank and of one shape; std::invalid_argument otherwise. On one device it is copy_.
WEFT_API void transfer_(const Tensor& to, const Tensor& from);
WEFT_API void uniform_(const Tensor& a, double low, double high);
WEFT_API void normal_(const Tensor& a, double mean, double deviation);
WEFT_API void bernoulli_(const Tensor& a, double p = 0.5);
/// The density is lambda exp(-lambda x).
WEFT_API void exponential_(const Tensor& a, double lambda = 1);
WEFT_API void cauchy_(const Tensor& a, double median = 0, double sigma = 1);
/// The number of trials up to the first success, of probability p in (0, 1).
WEFT_API void geometric_(const Tensor& a, double p);
/// exp of normal values.
WEFT_API void log_normal_(const Tensor& a, double mean = 1, double deviation = 2);
/// Integers in [low, high).
WEFT_API void random_(const Tensor& a, int64_t low, int64_t high);

}  // namespace weft
