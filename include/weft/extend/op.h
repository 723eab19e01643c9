// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/block.h"
#include "weft/dtype.h"
#include "weft/export.h"
#include "weft/extend/call.h"
#include "weft/extend/rule.h"
#include "weft/tensor.h"

namespace weft {

struct OpBody;
class Op;
class Parts;

/// A small intermediate result that ranks reduce before the next stage, or forward, runs. Stages
/// run only when a factor of `staged_over` is sharded.
struct Stage {
  /// Dims of the result, as factors ("...", or "." for none); "-n": operand 0's without factor n.
  std::string result;
  ReduceOp reduce = ReduceOp::sum;
  /// Writes stage(i), where i is the index of this stage.
  std::function<void(const Call&)> run;
  /// The result is i64 when `index` or when operand 0 is an integer, f64 for f64, f32 otherwise.
  bool index = false;
  /// Results are not reduced: stage(i) gets a leading dim with one entry for each part of the first
  /// factor of `staged_over`, in order. `run` writes this part's entry; stage_box(i) is its
  /// position. Floats are f64.
  bool gathered = false;
};

/// A view: strides (of the local block) and offset (in elements) of the result within operand 0.
struct View {
  Strides strides;
  int64_t offset = 0;
};

/// The operands that forward accepts. The engine refuses other dtypes, and copies an operand that
/// is not dense unless forward reads strides.
struct Takes {
  /// Empty: any dtype.
  std::vector<DType> dtypes = {DType::f32};
  bool strides = false;
};
/// Accepts any dtype and any strides: forward reads `MemoryBlock::dtype` and
/// `MemoryBlock::strides`.
inline Takes anything() { return {.dtypes = {}, .strides = true}; }

/// A dim that forward reads or writes at indices, which an operand holds. Ranks exchange the rows,
/// or elements, that are named, and no others; the dim keeps its cuts.
struct ByIndex {
  /// The operand whose ~ dim is read; or the operand that is written, row by row of its ~ dim, to
  /// the same dim of result 0.
  int rows = 0;
  /// The operand with the indices: i32 or i64. Of written rows they are a vector.
  int indices = 1;
  /// The operand with the written dim, whose cuts the result has; -1 for a dim that is read.
  int into = -1;
  /// Each element has its own index: operand `indices` has the shape of the elements.
  bool elements = false;
  /// The combination of rows that are written to one place.
  enum class Written : uint8_t { add, replace, multiply, max, min };
  Written written = Written::replace;
  /// Negative indices count from the end; otherwise they are mistakes.
  bool from_end = true;
};

/// Shapes, dtypes and attributes for the tests of an op.
struct OpSample {
  std::vector<Shape> shapes;
  Attributes attributes = {};
  /// Operand dtypes; empty: all f32.
  std::vector<DType> dtypes = {};
  /// Values are drawn from [low, high).
  double low = -2, high = 2;
};

/// Describes the numbers of `Attributes::structure` that an op expects.
struct Structure {
  /// Names of the numbers, in order: "dim, start, size, step".
  std::string names;
  /// Returns whether `numbers` are valid for operands (at least one) of these shapes.
  std::function<bool(const Dims& numbers, std::span<const Shape> operands)> fits;
};

/// Computes the results of an op by simpler ops.
using OpDefinition =
    std::function<Tensors(std::span<const Tensor> operands, const Attributes& attributes)>;

/// The definition of an op. Exactly one of `rule`, `rule_of` and `rule_text` is given.
struct OpSpec {
  std::string name;
  RuleLiteral rule = {};
  std::function<Rule(const Attributes&, std::span<const Shape>)> rule_of = {};
  std::string rule_text = {};
  /// One for each operand; the last one applies to the operands after it. Dense f32 unless given;
  /// `register_op` makes that `anything()`.
  std::vector<Takes> takes = {};
  /// True when the op only moves or compares elements: it takes f8 too. A view always does.
  bool moves = false;
  /// Takes complex operands; unless given, if it moves elements. False: it needs their order.
  std::optional<bool> complex = {};
  /// Checked before the rule is evaluated. Without it, any numbers are accepted.
  Structure structure = {};

  /// Sets of operands in which the op is jointly linear: a Partial of them passes to the results.
  std::vector<std::vector<int>> linear = {};
  /// Factors along which forward reads the position of this rank's part (Call::in_box, out_box);
  /// "..." for all leading dims. Along other factors an operand may have cuts of inner factors
  /// (Shard::outer), which ops with positions get redistributed. All factors unless given;
  /// `register_op` makes that none.
  std::optional<std::vector<std::string>> positions = {};
  /// Returns the dtype of result i; without it, results have operand 0's dtype.
  std::function<DType(const Attributes&, std::span<const DType>, int result)> dtype = {};

  /// Computes all results on one device. An op has `forward`, `view`, or both.
  std::function<void(const Call&)> forward = {};
  /// Returns result 0 as a view of operand 0, or nullopt when forward must copy.
  std::function<std::optional<View>(const Call&)> view = {};
  std::function<void(const Grad&)> backward = {};
  /// The op's meaning in simpler ops: the oracle of tests and, without `backward`, its gradient.
  OpDefinition definition = {};

  /// Small results that ranks reduce before forward when a factor of `staged_over` is sharded.
  std::vector<std::string> staged_over = {};
  std::vector<Stage> stages = {};
  /// Computes all results in place of forward when the first factor of `staged_over` is sharded, by
  /// exchanges between its parts (`weft/extend/parts.h`).
  std::function<void(const Call&, Parts&)> across = {};
  /// Returns, for operands with ~ dims, the slice (of the whole operand) that a slice of result 0
  /// needs.
  std::function<Box(const Attributes&, int operand, std::span<const Shape> operands,
                    const Box& result)>
      needs = {};
  /// Set for a ~ dim of rows that indices name. Forward then gets the named rows only, with indices
  /// into these; or, of elements, a vector of them, with their places in the flat result.
  std::optional<ByIndex> by_index = {};

  /// Operands and results that backward reads. All operands unless given; see `register_op`.
  std::optional<std::vector<int>> saves_in = {};
  std::vector<int> saves_out = {};
  /// Operands that forward changes in place.
  std::vector<int> writes = {};
  /// Results for which forward honours Call::accumulate.
  std::vector<int> accumulates = {};
  /// Returns the multiply-adds of forward per combination of the indices of all factors: 1 for a
  /// matrix product, less where a mask leaves some out. Without it, memory traffic bounds the op.
  std::function<double(const Attributes&)> products = {};
  /// False for results that no gradient flows through (indices, comparisons).
  bool differentiable = true;
  std::vector<OpSample> samples = {};
};

/// An operation: an immutable, shared handle. The constructor checks the spec and assigns an id
/// that is never used again.
class WEFT_API Op {
 public:
  explicit Op(OpSpec spec);
  explicit Op(std::shared_ptr<const OpBody> body) : body_(std::move(body)) {}

  /// Returns the results. std::invalid_argument when the operands do not fit the rule.
  Tensors call(std::span<const Tensor> operands,
               const Attributes& attributes = kNoAttributes) const;
  Tensors call(PassedTensors operands, const Attributes& attributes = kNoAttributes) const {
    return call(tensors_of(operands), attributes);
  }
  /// Returns the only result of an op that has one.
  Tensor operator()(std::span<const Tensor> operands,
                    const Attributes& attributes = kNoAttributes) const;
  Tensor operator()(PassedTensors operands, const Attributes& attributes = kNoAttributes) const {
    return (*this)(tensors_of(operands), attributes);
  }
  /// Writes result 0 into `destination`, or adds it when `accumulate`; redistributes it first when
  /// its layout differs.
  void into(const Tensor& destination, bool accumulate, std::span<const Tensor> operands,
            const Attributes& attributes = kNoAttributes) const;

  const OpSpec& spec() const;
  const OpBody& body() const { return *body_; }
  const std::shared_ptr<const OpBody>& shared() const { return body_; }

 private:
  std::shared_ptr<const OpBody> body_;
};

/// Registers a built-in op in `all_ops` and returns it. Unless given, `takes` is anything(),
/// `positions` are none, and `saves_in` are the operands that are not in every set of `linear`.
WEFT_API Op register_op(OpSpec spec);
/// The registered built-in ops.
WEFT_API const std::vector<Op>& all_ops();

}  // namespace weft
