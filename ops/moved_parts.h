// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "mesh/layout.h"
#include "ops/row_parts.h"
#include "weft/communicator.h"
#include "weft/tensor.h"

namespace weft {

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
  void start_all();
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
  /// Logs the movement, and the product with a weight of this local shape that it overlaps with.
  void log(const Shape& weight) const;

 private:
  CutRows rows_;
  Kind kind_;
  Tensor own_, whole_;
  /// By part; the counts of its pieces.
  std::vector<std::vector<std::vector<int64_t>>> counts_;
  std::vector<Work> works_;
  std::vector<bool> has_started_;
};

}  // namespace weft
