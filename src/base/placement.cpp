// SPDX-License-Identifier: Apache-2.0
#include "weft/placement.h"

#include <array>
#include <ostream>

#include "weft/error.h"
#include "weft/shape.h"

namespace weft {

Placement::Placement(Shard shard) : kind_(Kind::shard), dim_(static_cast<int8_t>(shard.dim)) {
  if (shard.dim < -kMaxDims || shard.dim >= kMaxDims) {
    fail("placement: dim of Shard is ", shard.dim, ", expected ", -kMaxDims, " to ", kMaxDims - 1);
  }
  for (const int64_t size : shard.sizes) {
    if (size < 0) {
      fail("placement: a size of Shard(", shard.dim, ") must be at least 0, got ", size);
    }
  }
  if (!shard.sizes.empty()) {
    sizes_ = std::make_shared<const std::vector<int64_t>>(std::move(shard.sizes));
  }
}

std::span<const int64_t> Placement::sizes() const {
  return sizes_ ? std::span<const int64_t>(*sizes_) : std::span<const int64_t>();
}

bool Placement::has_equal_sizes(const Placement& other) const {
  return sizes_ && other.sizes_ && *sizes_ == *other.sizes_;
}

Placement Placement::counted(int ndim) const {
  if (!is_shard() || dim_ >= 0) return *this;
  if (dim_ >= -ndim) {
    Placement placement = *this;
    placement.dim_ = static_cast<int8_t>(dim_ + ndim);
    return placement;
  }
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

/// "3+1+4"; of more than eight sizes the first five and the last.
static void print_sizes(std::ostream& out, std::span<const int64_t> sizes) {
  const bool all = sizes.size() <= 8;
  for (size_t i = 0; i < (all ? sizes.size() : 5); ++i) out << (i ? "+" : "") << sizes[i];
  if (!all) out << "+...+" << sizes.back();
}

std::ostream& operator<<(std::ostream& out, const Placement& placement) {
  if (placement.is_replicate()) return out << 'R';
  if (placement.is_shard()) {
    out << "S(" << placement.dim();
    if (placement.has_sizes()) print_sizes(out << ": ", placement.sizes());
    return out << ')';
  }
  return out << "P(" << placement.op() << ')';
}

}  // namespace weft
