// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/export.h"
#include "weft/reduce_op.h"

namespace weft {

/// Each device along the axis holds the whole tensor.
struct Replicate {
  bool operator==(const Replicate&) const = default;
};

/// Each device along the axis holds one contiguous slice of dimension `dim`: ceil(size / devices)
/// elements; the last devices hold fewer or none. An empty slice is a valid tensor. Shard(-1)
/// shards the last dim of any tensor.
struct Shard {
  int dim;
  /// Explicit sizes of the slices, equal on all ranks: one per device along the axis. Where other
  /// axes cut the dim outside of this one, each of their slices has as many sizes, in order.
  std::vector<int64_t> sizes = {};
  /// Cuts an inner factor of the dim: a dim of size n is seen as [outer, n / outer], and the slices
  /// are those of the second factor, for each index of the first. `outer` must divide n. A tensor
  /// [4, 6] with Shard(1) is, as [24], one with Shard{0, {}, 4}.
  int64_t outer = 1;
  bool operator==(const Shard&) const = default;
};

/// Each device along the axis holds a tensor of full size; the value is their reduction.
struct Partial {
  ReduceOp op = ReduceOp::sum;
  bool operator==(const Partial&) const = default;
};

/// How a tensor is distributed along one axis of a mesh: Replicate, Shard(dim) or Partial(op).
class WEFT_API Placement {
 public:
  Placement() = default;
  Placement(Replicate) {}
  /// A negative dim counts from the end, once the tensor is known. Throws std::invalid_argument
  /// when no tensor can have the dim.
  Placement(Shard shard);
  Placement(Partial partial) : kind_(Kind::partial), op_(partial.op) {}

  bool is_replicate() const { return kind_ == Kind::replicate; }
  bool is_shard() const { return kind_ == Kind::shard; }
  bool is_shard(int dim) const { return is_shard() && dim_ == dim; }
  bool is_partial() const { return kind_ == Kind::partial; }
  /// The dim of a Shard, -1 otherwise.
  int dim() const { return dim_; }
  /// The explicit sizes of a Shard's slices; empty for slices of ceil(size / devices) elements.
  std::span<const int64_t> sizes() const;
  /// The sum of the explicit sizes before each slice, and of all.
  std::span<const int64_t> begins() const;
  bool has_sizes() const { return sizes_ != nullptr; }
  /// The product of the factors of a Shard's dim outside of the one that it cuts; otherwise 1.
  int64_t outer() const { return outer_; }
  /// True for Shards of the same factor of the same dim.
  bool cuts_with(const Placement& other) const {
    return is_shard() && other.is_shard(dim_) && outer_ == other.outer_;
  }
  /// Returns the placement with its dim counted from the start, for a tensor of `ndim` dims;
  /// std::invalid_argument when the tensor has no such dim.
  Placement counted(int ndim) const;
  /// The reduction of a Partial.
  ReduceOp op() const { return op_; }

  bool operator==(const Placement& other) const {
    return kind_ == other.kind_ && dim_ == other.dim_ && op_ == other.op_ &&
           outer_ == other.outer_ && (sizes_ == other.sizes_ || has_equal_sizes(other));
  }

 private:
  bool has_equal_sizes(const Placement& other) const;

  enum class Kind : uint8_t { replicate, shard, partial };
  Kind kind_ = Kind::replicate;
  int8_t dim_ = -1;
  ReduceOp op_ = ReduceOp::sum;
  int64_t outer_ = 1;
  /// The sizes, then their sums.
  std::shared_ptr<const std::vector<int64_t>> sizes_;
};

/// A placement for the axis called `axis`.
struct NamedPlacement {
  std::string axis;
  Placement placement;
};

/// The order in which mesh axes shard one dim, outermost first.
struct CutOrder {
  int dim;
  std::vector<std::string> axes;
};

/// One placement per mesh axis, by position ({Shard(0), Replicate()}) or by name ({{"tp",
/// Shard(0)}}). Axes that are not named replicate; {} replicates on all axes. Several axes that
/// shard one dim do so in mesh order unless `cut_in_order` changes it.
class WEFT_API Placements {
 public:
  Placements() = default;
  Placements(std::initializer_list<Placement> by_position) : by_position_(by_position) {}
  Placements(std::initializer_list<NamedPlacement> by_name) : by_name_(by_name) {}
  explicit Placements(std::span<const Placement> by_position)
      : by_position_(by_position.begin(), by_position.end()) {}
  explicit Placements(std::span<const NamedPlacement> by_name)
      : by_name_(by_name.begin(), by_name.end()) {}

  /// Returns the same placements with `dim` sharded by `axes` in that order, outermost first.
  /// `axes` are names of the root mesh's axes and must include every axis that shards the dim.
  Placements cut_in_order(int dim, std::vector<std::string> axes) const;

  const std::vector<Placement>& by_position() const { return by_position_; }
  const std::vector<NamedPlacement>& by_name() const { return by_name_; }
  const std::vector<CutOrder>& orders() const { return orders_; }

 private:
  std::vector<Placement> by_position_;
  std::vector<NamedPlacement> by_name_;
  std::vector<CutOrder> orders_;
};

/// "R", "S(0)", "S(0: 3+1+4)", "S(0 in 4x*)" for outer 4, "P(sum)".
WEFT_API std::ostream& operator<<(std::ostream& out, const Placement& placement);

}  // namespace weft
