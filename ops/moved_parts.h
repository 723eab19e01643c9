// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "mesh/plan.h"
#include "weft/communicator.h"
#include "weft/export.h"
#include "weft/extend/op.h"
#include "weft/tensor.h"

namespace weft {

/// Splits the rows of a tensor [..., width], which one axis cuts along a dim before the last, into
/// parts that are gathered, or reduced and scattered, one after the other. Parts are
/// ranges of dim 0 if it has as many elements and is not the cut dim, else ranges of each rank's
/// part of the cut dim. No rank has to pack: a collective of a part sends and receives several
/// pieces in their places.
class RowParts {
 public:
  /// `cut` is a layout in which only `axis` cuts `dim`; `whole` is the same replicated along it.
  RowParts(const Layout& cut, const Layout& whole, int axis, int dim, int parts);

  int count() const { return count_; }
  /// Calls `use` with blocks that make up part `part` of `a` and `b`, two whole blocks [..., width]
  /// of this rank. The blocks may have one dim more.
  void for_blocks(int part, const MemoryBlock& a, const MemoryBlock& b,
                  const std::function<void(const MemoryBlock&, const MemoryBlock&)>& use) const;
  /// The pieces of an all-gather of a part from `own` to `whole`, or with `scatters` those of a
  /// reduce-scatter from `whole` to `own`; both blocks are dense. Valid while `counts` is.
  std::vector<Piece> pieces(int part, const MemoryBlock& own, const MemoryBlock& whole,
                            bool scatters, std::vector<std::vector<int64_t>>& counts) const;

 private:
  struct Range {
    int64_t begin, end;
  };
  Range range(int64_t size, int part) const {
    return {size * part / count_, size * (part + 1) / count_};
  }
  /// The range of a part of the cut dim that a rank has.
  Range within(int rank, int part) const;

  int dim_;
  int count_;
  bool by_first_dim_;
  int self_ = 0;
  /// Each rank's size of the cut dim, and where it begins.
  std::vector<int64_t> lengths_, begins_;
  bool is_even_;
  /// Products of the local sizes before the cut dim (all, and without dim 0) and between it and the
  /// last one.
  int64_t outer_ = 1, outer_of_first_ = 1, inner_ = 1, first_ = 1, size_ = 0;
};

/// Returns `layout` with that placement on one axis.
Ref<Layout> with_placement(const Layout& layout, int axis, const Placement& placement);

/// A tensor that is cut along one dim over one axis, and the layout in which it is whole there.
struct CutRows {
  CutRows(const Ref<Layout>& cut, int axis, int dim, int parts);

  Ref<Layout> cut, whole;
  int axis;
  RowParts rows;
  Communicator ranks;
};

/// The parts of a tensor while they are gathered, or reduced and scattered. Collectives run on the
/// stream of copies. Keeps both tensors until the end.
class MovedParts {
 public:
  enum class Kind : uint8_t { gather, reduce_scatter };
  /// `own` is laid out as `rows.cut`; `whole` is replicated, or a Partial sum, along the axis. It
  /// may be empty until `finish`.
  MovedParts(const CutRows& rows, Kind kind, Tensor own, Tensor whole);

  /// Starts the collective of a part, after what is queued on the computing stream.
  void start(int part, const MemoryBlock& whole);
  /// Starts the parts that have not been started.
  void start_others();
  /// Makes the computing stream wait for a part that has been started.
  void wait(int part);
  void wait();
  /// Starts the parts of `whole` that have not been started, and waits for all.
  void finish(const Tensor& whole);
  const RowParts& rows() const { return rows_.rows; }
  const Tensor& own() const { return own_; }
  const Tensor& whole() const { return whole_; }
  /// All parts have moved. Logs the movement, and the product with a weight of this local shape
  /// that it overlaps with.
  void log(const Shape& weight) const;

 private:
  bool scatters() const { return kind_ == Kind::reduce_scatter; }
  /// The plan that moves the parts at once, and bytes of a part that this rank receives.
  Ref<Plan> plan() const;
  int64_t bytes_of(int part) const;
  std::string axis() const;

  CutRows rows_;
  Kind kind_;
  Tensor own_, whole_;
  /// Indexed by part; the counts of its pieces.
  std::vector<std::vector<std::vector<int64_t>>> counts_;
  std::vector<Work> works_;
  std::vector<bool> has_started_;
};

/// Splits the products of this rank by the rows of their first operand, in a scope: `before` is
/// called before a part is computed, `after` with the product's memory when it has been queued.
class ProductParts : NotCopied {
 public:
  using Before = std::function<void(int part)>;
  using After = std::function<void(int part, const MemoryBlock& product)>;
  ProductParts(const RowParts& rows, Before before, After after);
  ~ProductParts();

  /// The calling thread's innermost one; null without.
  static ProductParts* current();
  /// Computes out = product(a) part by part.
  void compute(const MemoryBlock& a, const MemoryBlock& out,
               const std::function<void(const MemoryBlock&, const MemoryBlock&)>& product);
  /// On device `meta`, where no product is computed: does the same without it. To be called before
  /// the op.
  void skip(Device device);

 private:
  void end_part(int part, const MemoryBlock& out);

  const RowParts& rows_;
  const Before before_;
  const After after_;
  ProductParts* const outer_;
};

/// The op of `matmul` for operands of one dtype.
const Op& matmul_product();

}  // namespace weft
