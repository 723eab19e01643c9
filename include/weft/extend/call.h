// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "weft/block.h"
#include "weft/export.h"
#include "weft/shape.h"
#include "weft/tensor.h"

namespace weft {

struct CallBody;
struct GradBody;
class Op;

/// Arguments of an op call other than its operands. Only `structure` (dims, flags, sizes) is part
/// of the key under which the call's route is cached; `values` (scalars, eps) and `random` (seed,
/// stream) are not. An op that takes several numbers declares a struct of at most 6 fields of
/// number types for them, and converts with `pack_structure`, `pack_values` and `unpack`: field i
/// is number i.
struct Attributes {
  Dims structure = {};
  std::array<double, 6> values{};
  std::array<uint64_t, 2> random{};
};
/// The default argument of calls without attributes: a new object for each call takes 25 ns.
inline const Attributes kNoAttributes;

/// Converts to the type of any field, to count the fields of a struct.
struct AnyField {
  template <class T> operator T() const;
};

/// Calls f with each field of `fields`, in order.
template <class Fields, class F> constexpr void for_each_field(Fields& fields, const F& f) {
  const auto each = [&](auto&... field) { (f(field), ...); };
  using A = AnyField;
  if constexpr (requires { Fields{A(), A(), A(), A(), A(), A()}; }) {
    auto& [f0, f1, f2, f3, f4, f5] = fields;
    each(f0, f1, f2, f3, f4, f5);
  } else if constexpr (requires { Fields{A(), A(), A(), A(), A()}; }) {
    auto& [f0, f1, f2, f3, f4] = fields;
    each(f0, f1, f2, f3, f4);
  } else if constexpr (requires { Fields{A(), A(), A(), A()}; }) {
    auto& [f0, f1, f2, f3] = fields;
    each(f0, f1, f2, f3);
  } else if constexpr (requires { Fields{A(), A(), A()}; }) {
    auto& [f0, f1, f2] = fields;
    each(f0, f1, f2);
  } else {
    auto& [f0, f1] = fields;
    each(f0, f1);
  }
}

/// Returns the fields that `numbers` (of `structure` or `values`) stand for.
template <class Fields, class Numbers> constexpr Fields unpack(const Numbers& numbers) {
  Fields fields{};
  auto number = numbers.begin();
  for_each_field(fields, [&]<class T>(T& field) { field = static_cast<T>(*number++); });
  return fields;
}

/// Returns the numbers that stand for `fields`, as `structure` or as `values`.
template <class Fields> Dims pack_structure(Fields fields) {
  Dims numbers;
  for_each_field(fields, [&](auto field) { numbers.push_back(static_cast<int64_t>(field)); });
  return numbers;
}
template <class Fields> constexpr std::array<double, 6> pack_values(Fields fields) {
  std::array<double, 6> numbers{};
  double* number = numbers.data();
  for_each_field(fields, [&](auto field) { *number++ = static_cast<double>(field); });
  return numbers;
}

/// An operand in a braced list, as in `op({a, b})`. It refers to the caller's tensor, which must
/// live until the call returns, and does not count as a handle of it.
class PassedTensor {
 public:
  PassedTensor(const Tensor& tensor) : tensor_(Ref<TensorBody>::uncounted(tensor.body().get())) {}
  PassedTensor(const PassedTensor&) = delete;
  PassedTensor& operator=(const PassedTensor&) = delete;
  /// Leaves the count as it is.
  ~PassedTensor() {}

 private:
  union {
    Tensor tensor_;
  };
};
static_assert(sizeof(PassedTensor) == sizeof(Tensor));
using PassedTensors = std::initializer_list<PassedTensor>;

inline std::span<const Tensor> tensors_of(PassedTensors list) {
  return {reinterpret_cast<const Tensor*>(list.begin()), list.size()};
}

/// This rank's part of a tensor as a box of a shape in which inner factors that are cut (see
/// Shard::outer) are separate dims. Without such cuts, it has the tensor's dims.
struct Region {
  MemoryBlock block;
  Box box;
  Shape shape;
};

/// One run of an op's forward on one device: this rank's parts of operands and results, and their
/// position in the whole tensors. A forward never communicates.
class WEFT_API Call {
 public:
  explicit Call(const CallBody& body) : body_(body) {}

  int operands() const;
  /// Memory of operand or result i. A result is dense, but may be strided if the op `accumulates`
  /// it. In an op without results, result i is operand i, which it changes in place. No result has
  /// memory while `view` runs.
  const MemoryBlock& in(int i) const;
  const MemoryBlock& out(int i = 0) const;
  /// Shape of the whole tensor, and the slice of it that this rank holds.
  const Shape& in_shape(int i) const;
  const Shape& out_shape(int i = 0) const;
  const Box& in_box(int i) const;
  const Box& out_box(int i = 0) const;
  /// The same where inner factors of dims may be cut, for an op that needs the positions.
  Region in_region(int i) const;
  Region out_region(int i = 0) const;

  const Attributes& attributes() const;
  int64_t attribute(int i) const { return attributes().structure[i]; }
  double value(int i) const { return attributes().values[static_cast<size_t>(i)]; }

  /// True when forward must add to what out(i) holds (only for results that the op `accumulates`).
  bool accumulate(int i = 0) const;
  /// False where a term that is not an operand (a scalar) must be left out: on all but one rank of
  /// a Partial(sum).
  bool counts_here() const;
  /// True when the stages run because their factor is sharded; stage(i) is then the reduced result
  /// of stage i.
  bool staged() const;
  const MemoryBlock& stage(int i) const;
  /// The part of a gathered stage i that this rank wrote.
  const Box& stage_box(int i) const;

 private:
  const CallBody& body_;
};

/// One run of an op's backward, written in tensor ops.
class WEFT_API Grad {
 public:
  explicit Grad(GradBody& body) : body_(body) {}

  int operands() const;
  int results() const;
  /// The gradient of result i; an empty tensor when nothing depends on the result.
  const Tensor& grad(int i = 0) const;
  /// Saved operand or result i (one that the op's `saves_in` or `saves_out` names).
  Tensor in(int i) const;
  Tensor out(int i = 0) const;
  const Shape& in_shape(int i) const;
  DType in_dtype(int i) const;
  /// Layout of operand i as the caller passed it.
  Sharding in_sharding(int i) const;
  const Attributes& attributes() const;
  int64_t attribute(int i) const { return attributes().structure[i]; }
  double value(int i) const { return attributes().values[static_cast<size_t>(i)]; }
  /// True when operand i needs a gradient.
  bool wants(int i) const;

  /// Passes on the gradient of operand i. It has the operand's shape, or the shape that the operand
  /// was broadcast to: the engine then sums over the broadcast dims.
  void give(int i, const Tensor& gradient) const;
  /// Calls `op` and passes on its first result as the gradient of operand i. The op writes it
  /// directly into the memory of the leaf's gradient where possible.
  void give(int i, const Op& op, PassedTensors operands,
            const Attributes& attributes = kNoAttributes) const {
    if (wants(i)) give_all(std::span(&i, 1), op, tensors_of(operands), attributes);
  }

  /// Calls `op` and passes on its result r as the gradient of operand `of[r]`, each written
  /// directly into the memory of the leaf's gradient where possible.
  void give_all(std::span<const int> of, const Op& op, std::span<const Tensor> operands,
                const Attributes& attributes = kNoAttributes) const;
  void give_all(std::initializer_list<int> of, const Op& op, PassedTensors operands,
                const Attributes& attributes = kNoAttributes) const {
    give_all(std::span(of.begin(), of.size()), op, tensors_of(operands), attributes);
  }

 private:
  GradBody& body_;
};

}  // namespace weft
