// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <span>

#include "weft/attributes.h"
#include "weft/block.h"
#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

struct CallBody;
struct GradBody;
class Op;

/// One run of an op's forward on one device: this rank's parts of operands and results, and where
/// in the whole they lie. It never communicates.
class WEFT_API Call {
 public:
  explicit Call(const CallBody& body) : body_(body) {}

  int operands() const;
  /// Memory of operand or result i. A result is dense; a view's result is where its operand is.
  const Block& in(int i) const;
  const Block& out(int i = 0) const;
  /// The whole's shape, and which slice of it is here.
  const Shape& in_shape(int i) const;
  const Shape& out_shape(int i = 0) const;
  const Box& in_box(int i) const;
  const Box& out_box(int i = 0) const;

  const Attributes& attributes() const;
  int64_t attribute(int i) const { return attributes().structure[i]; }
  double value(int i) const { return attributes().values[static_cast<size_t>(i)]; }

  /// Add to what out(i) holds (only for results that the op `accumulates`).
  bool accumulate(int i = 0) const;
  /// False where an addend that is no operand (a scalar) must not count: on all but one rank of a
  /// Partial(sum).
  bool counts_here() const;
  /// True when the stages ran because their factor is cut; stage(i) is then what they reduced.
  bool staged() const;
  const Block& stage(int i) const;

 private:
  const CallBody& body_;
};

/// One run of an op's backward, in tensor ops.
class WEFT_API Grad {
 public:
  explicit Grad(GradBody& body) : body_(body) {}

  int operands() const;
  /// The gradient of result i; no tensor when nothing depends on it.
  const Tensor& grad(int i = 0) const;
  /// Saved operand and result i (what the op's `saves_in` and `saves_out` name).
  Tensor in(int i) const;
  Tensor out(int i = 0) const;
  const Shape& in_shape(int i) const;
  DType in_dtype(int i) const;
  /// How operand i was laid out when it was given.
  Sharding in_sharding(int i) const;
  const Attributes& attributes() const;
  int64_t attribute(int i) const { return attributes().structure[i]; }
  double value(int i) const { return attributes().values[static_cast<size_t>(i)]; }
  /// Whether operand i's gradient is wanted.
  bool wants(int i) const;

  /// Operand i's gradient is `gradient` (its shape, or one that broadcast to it: the engine sums).
  void give(int i, const Tensor& gradient) const;
  /// Operand i's gradient is the first result of that call, which writes it where it belongs when
  /// it can.
  void give(int i, const Op& op, std::span<const Tensor> operands,
            const Attributes& attributes = {}) const;
  void give(int i, const Op& op, std::initializer_list<Tensor> operands,
            const Attributes& attributes = {}) const {
    give(i, op, std::span(operands.begin(), operands.size()), attributes);
  }

  /// Result r of that call is the gradient of operand `of[r]`, each written where it belongs when
  /// it can be.
  void give_all(std::span<const int> of, const Op& op, std::span<const Tensor> operands,
                const Attributes& attributes = {}) const;
  void give_all(std::initializer_list<int> of, const Op& op, std::initializer_list<Tensor> operands,
                const Attributes& attributes = {}) const {
    give_all(std::span(of.begin(), of.size()), op, std::span(operands.begin(), operands.size()),
             attributes);
  }

 private:
  GradBody& body_;
};

}  // namespace weft
