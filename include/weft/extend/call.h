// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <span>

#include "weft/block.h"
#include "weft/export.h"
#include "weft/extend/attributes.h"
#include "weft/tensor.h"

namespace weft {

struct CallBody;
struct GradBody;
class Op;

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
  /// Whether operand i needs a gradient.
  bool wants(int i) const;

  /// Passes on the gradient of operand i. It has the operand's shape, or the shape that the operand
  /// was broadcast to: the engine then sums over the broadcast dims.
  void give(int i, const Tensor& gradient) const;
  /// Calls `op` and passes on its first result as the gradient of operand i. The op writes it
  /// directly into the memory of the leaf's gradient where possible.
  void give(int i, const Op& op, std::span<const Tensor> operands,
            const Attributes& attributes = {}) const;
  void give(int i, const Op& op, PassedTensors operands, const Attributes& attributes = {}) const {
    give(i, op, tensors_of(operands), attributes);
  }

  /// Calls `op` and passes on its result r as the gradient of operand `of[r]`, each written
  /// directly into the memory of the leaf's gradient where possible.
  void give_all(std::span<const int> of, const Op& op, std::span<const Tensor> operands,
                const Attributes& attributes = {}) const;
  void give_all(std::initializer_list<int> of, const Op& op, PassedTensors operands,
                const Attributes& attributes = {}) const {
    give_all(std::span(of.begin(), of.size()), op, tensors_of(operands), attributes);
  }

 private:
  GradBody& body_;
};

}  // namespace weft
