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
#include "weft/call.h"
#include "weft/export.h"
#include "weft/rule.h"
#include "weft/tensor.h"

namespace weft {

struct OpBody;
class Op;

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

/// The numbers of `Attributes::structure` that an op takes.
struct Structure {
  /// What they are, in order: "dim, start, size, step".
  std::string names;
  /// Whether they are that, beside operands (one at least) of these shapes.
  std::function<bool(const Dims& numbers, std::span<const Shape> operands)> fits;
};

/// What an op is. Exactly one of `rule`, `rule_of`, `rule_text` is given.
struct OpSpec {
  std::string name;
  RuleLiteral rule = {};
  std::function<Rule(const Attributes&, std::span<const Shape>)> rule_of = {};
  std::string rule_text = {};
  /// Checked before the rule is asked; numbers that are not described come as they are given.
  Structure structure = {};

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
  /// Matrix products that forward takes for each combination of the rule's factors (a fraction
  /// where it leaves some out); none: it is bound by bytes.
  std::function<double(const Attributes&)> products = {};
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
