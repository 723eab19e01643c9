// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/attributes.h"
#include "weft/block.h"
#include "weft/export.h"
#include "weft/rule.h"
#include "weft/tensor.h"

namespace weft {

struct OpBody;
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

/// A small result that ranks reduce before the next stage, or forward, runs. Stages run only when
/// a factor of `over` is cut.
struct Stage {
  /// The result's dims, by factors ("...", or "." for none).
  std::string result;
  ReduceOp reduce;
  std::function<void(const Call&)> run;
  /// Writes stage(i) of this number, by operand 0: i64 for integers and when `index`, f64 for f64,
  /// f32 otherwise.
  bool index = false;
};

/// A view: strides (of the local block) and offset (in elements) of the result within operand 0.
struct View {
  Strides strides;
  int64_t offset = 0;
};

/// Shapes, dtypes and attributes with which an op is tested.
struct OpSample {
  std::vector<Shape> shapes;
  Attributes attributes = {};
  /// Operand dtypes; empty: all f32.
  std::vector<DType> dtypes = {};
  /// Values lie in [low, high).
  double low = -2, high = 2;
};

/// What an op is. Exactly one of `rule`, `rule_of`, `rule_text` is given.
struct OpSpec {
  std::string name;
  RuleLiteral rule = {};
  std::function<Rule(const Attributes&, std::span<const Shape>)> rule_of = {};
  std::string rule_text = {};

  /// Sets of operands in which the op is jointly linear: Partial passes there.
  std::vector<std::vector<int>> linear = {};
  /// dtype of result i; operand 0's when not given.
  std::function<DType(const Attributes&, std::span<const DType>, int result)> dtype = {};

  /// Computes all results on one device. Either this or `view`.
  std::function<void(const Call&)> forward = {};
  /// Result 0 as a view of operand 0; nothing when it is none and forward must copy.
  std::function<std::optional<View>(const Call&)> view = {};
  std::function<void(const Grad&)> backward = {};

  /// Small results reduced over ranks before forward, when one of the factors `staged_over` is cut.
  std::vector<std::string> staged_over = {};
  std::vector<Stage> stages = {};
  /// For operands with ~ dims: the slice (of the whole operand) that a slice of result 0 needs.
  std::function<Box(const Attributes&, int operand, std::span<const Shape> operands,
                    const Box& result)>
      needs = {};

  /// What backward reads. Operands: all unless given.
  std::optional<std::vector<int>> saves_in = {};
  std::vector<int> saves_out = {};
  /// Operands that forward changes in place.
  std::vector<int> writes = {};
  /// Results for which forward honours Call::accumulate.
  std::vector<int> accumulates = {};
  /// False for results that no gradient flows through (indices, comparisons).
  bool differentiable = true;
  std::vector<OpSample> samples = {};
};

/// An operation: an immutable, shared handle. Making one checks the spec; its id is never used
/// again.
class WEFT_API Op {
 public:
  explicit Op(OpSpec spec);
  explicit Op(std::shared_ptr<const OpBody> body) : body_(std::move(body)) {}

  /// The results. std::invalid_argument when operands do not fit the rule.
  Tensors call(std::span<const Tensor> operands, const Attributes& attributes = {}) const;
  Tensors call(std::initializer_list<Tensor> operands, const Attributes& attributes = {}) const {
    return call(std::span(operands.begin(), operands.size()), attributes);
  }
  /// The only result of an op that has one.
  Tensor operator()(std::span<const Tensor> operands, const Attributes& attributes = {}) const;
  Tensor operator()(std::initializer_list<Tensor> operands,
                    const Attributes& attributes = {}) const {
    return (*this)(std::span(operands.begin(), operands.size()), attributes);
  }
  /// Writes result 0 into `destination` (its layout, or one that redistributes to it), adding to it
  /// when `accumulate`.
  void into(const Tensor& destination, bool accumulate, std::span<const Tensor> operands,
            const Attributes& attributes = {}) const;

  const OpSpec& spec() const;
  const OpBody& body() const { return *body_; }
  const std::shared_ptr<const OpBody>& shared() const { return body_; }

 private:
  std::shared_ptr<const OpBody> body_;
};

/// Makes a built-in op and enters it in `all_ops`.
WEFT_API Op list(OpSpec spec);
/// The built-in ops.
WEFT_API const std::vector<Op>& all_ops();

}  // namespace weft
