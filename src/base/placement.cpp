// SPDX-License-Identifier: Apache-2.0
#include "weft/placement.h"

#include <array>
#include <ostream>

#include "weft/error.h"
#include "weft/shape.h"

namespace weft {

Placement::Placement(Shard shard) : kind_(Kind::shard), dim_(static_cast<int8_t>(shard.dim)) {
  if (shard.dim >= -kMaxDims && shard.dim < kMaxDims) return;
  fail("placement: dim of Shard is ", shard.dim, ", expected ", -kMaxDims, " to ", kMaxDims - 1);
}

Placement Placement::counted(int ndim) const {
  if (!is_shard() || dim_ >= 0) return *this;
  if (dim_ >= -ndim) return Shard{dim_ + ndim};
  fail("placement: it is ", *this, ", expected a dim of the ", ndim, " that the tensor has");
}

Placements Placements::cut_in_order(int dim, std::vector<std::string> axes) const {
  Placements ordered = *this;
  ordered.orders_.push_back({dim, std::move(axes)});
  return ordered;
}

std::string_view name_of(ReduceOp op) {
  static constexpr std::array<std::string_view, 4> names = {"sum", "avg", "max", "min"};
  return names[static_cast<size_t>(op)];
}

std::ostream& operator<<(std::ostream& out, ReduceOp op) { return out << name_of(op); }

std::ostream& operator<<(std::ostream& out, const Placement& placement) {
  if (placement.is_replicate()) return out << 'R';
  if (placement.is_shard()) return out << "S(" << placement.dim() << ')';
  return out << "P(" << placement.op() << ')';
}

}  // namespace weft
