// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
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
  /// Takes over a handle that was counted, if the body counts handles.
  Sharding(const ShardingBody* body, bool counted) : body_(body), counted_(counted) {}
  Sharding(const Sharding& other) : body_(other.body_), counted_(other.counted_) {
    if (counted_) retain();
  }
  Sharding(Sharding&& other) noexcept
      : body_(std::exchange(other.body_, nullptr)),
        counted_(std::exchange(other.counted_, false)) {}
  Sharding& operator=(Sharding other) noexcept {
    std::swap(body_, other.body_);
    std::swap(counted_, other.counted_);
    return *this;
  }
  ~Sharding() {
    if (counted_) release();
  }
  /// Puts `placements` on the axes of `mesh`; other axes of its root mesh replicate.
  /// std::invalid_argument for more placements than axes, an unknown axis, Partials of two kinds,
  /// or an order that does not name the cutting axes.
  Sharding(const DeviceMesh& mesh, const Placements& placements);
  /// The same for a tensor of `ndim` dims; negative dims count from the end.
  Sharding(const DeviceMesh& mesh, const Placements& placements, int ndim);

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
  /// Root axes that cut `dim`, outermost first.
  Axes axes_cutting(int dim) const;
  /// True when some axis is Partial.
  bool has_partial() const;
  /// True when each rank holds the whole tensor.
  bool is_replicated() const;

  /// The placements and orders as a value without a mesh. Requires a sharding that is not empty.
  const Pattern& pattern() const;
  const ShardingBody* body() const { return body_; }

 private:
  void retain() const;
  void release();

  const ShardingBody* body_ = nullptr;
  bool counted_ = false;
};

/// "mesh(dp=2, tp=2)[S(0), R]", with the order of the cuts where it differs from mesh order.
WEFT_API std::ostream& operator<<(std::ostream& out, const Sharding& sharding);

}  // namespace weft
