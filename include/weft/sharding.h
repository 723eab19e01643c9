// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <memory>
#include <span>
#include <utility>

#include "weft/export.h"
#include "weft/extend/pattern.h"
#include "weft/mesh.h"
#include "weft/placement.h"

namespace weft {

struct ShardingBody;

/// A placement for each axis of a root mesh and, for each dim, the order in which axes cut it.
/// Interned: equal shardings are one pointer, for the mesh's lifetime or, with explicit sizes,
/// until the last handle is gone. Empty for a tensor that is not distributed.
class WEFT_API Sharding {
 public:
  Sharding() = default;
  explicit Sharding(std::shared_ptr<const ShardingBody> body) : body_(std::move(body)) {}
  /// Puts `placements` on the axes of `mesh`; other axes of its root mesh replicate. Negative dims
  /// count from the end of a tensor of `ndim` dims. std::invalid_argument for negative dims where
  /// it is 0, more placements than axes, an unknown axis, Partials of two kinds, or an order that
  /// does not name the cutting axes.
  Sharding(const DeviceMesh& mesh, const Placements& placements, int ndim = 0);

  /// Puts `pattern` on all axes of the root mesh; std::invalid_argument for Partials of two kinds.
  static Sharding of(const DeviceMesh& mesh, const Pattern& pattern);

  explicit operator bool() const { return body_ != nullptr; }
  bool operator==(const Sharding&) const = default;

  /// The root mesh.
  DeviceMesh mesh() const;
  int axes() const;
  const Placement& operator[](int axis) const;
  std::span<const Placement> placements() const;
  /// True when the parts along some axis have explicit sizes.
  bool has_sizes() const;
  /// True when some axis cuts an inner factor of a dim.
  bool has_inner() const;
  /// Root axes that cut `dim`, those of outer factors first, for each factor outermost first.
  Axes axes_cutting(int dim) const;
  /// True when some axis is Partial.
  bool has_partial() const;
  /// True when each rank holds the whole tensor.
  bool is_replicated() const;

  /// The placements and orders as a value without a mesh. Requires a sharding that is not empty.
  const Pattern& pattern() const;
  const ShardingBody* body() const { return body_.get(); }

 private:
  /// Counts handles with explicit sizes only; the others refer to what the mesh keeps.
  std::shared_ptr<const ShardingBody> body_;
};

/// "mesh(dp=2, tp=2)[S(0), R]", with the order of the cuts where it differs from mesh order.
WEFT_API std::ostream& operator<<(std::ostream& out, const Sharding& sharding);

}  // namespace weft
