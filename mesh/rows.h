// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mesh/plan.h"
#include "src/kernels/take/take.h"
#include "weft/storage.h"

namespace weft {

// Counted exchanges: ranks read from each other, or send to each other, rows that their indices
// name. One exchange where ranks read each other's memory; else one of counts, one of keys and one
// of rows. Collective among the ranks along the axes that cut the dim, also of those that name
// none.

/// A dim of a tensor whose rows move: slices of this rank's other dims, or their elements.
struct RowDim {
  Ref<Layout> layout;
  int dim = 0;
  /// A key names one element.
  bool elements = false;

  /// Elements of this rank's other dims, in row-major order: lanes.
  int64_t lanes() const;
  /// Keys of index i of the dim: i; of elements i * lanes() + lane.
  int64_t keys_per_index() const { return elements ? lanes() : 1; }
  /// Shape of this rank's `count` rows: its part with that size of the dim, or [count] elements.
  Shape shape_of(int64_t count) const;
};

/// Keys without repetition, ascending; places[i] is the position of the i-th given key among them.
struct DistinctKeys {
  std::vector<int64_t> keys;
  std::vector<int64_t> places;
};
DistinctKeys distinct(std::span<const int64_t> keys);

/// Returns indices (i32 or i64; negative ones count from the end, if `from_end`) as keys of that
/// dim. Elements have one index each: `indices` has the shape of their block. Puts a text into
/// `mistake` for an index that is none of the dim's, and returns no keys then.
std::vector<int64_t> keys_of(const RowDim& rows, const MemoryBlock& indices, std::string& mistake,
                             bool from_end = true);

/// Fetches the rows of ascending, distinct keys from this rank's part `in` and those of others into
/// `out` (of `rows.shape_of(keys.size())`). A rank with a `mistake` fetches nothing: the call then
/// throws std::invalid_argument with that text on all its ranks.
void fetch_distinct_rows(const RowDim& rows, const MemoryBlock& in, std::span<const int64_t> keys,
                         const MemoryBlock& out, const std::string& mistake = {});

/// Rows and their keys.
struct KeyedRows {
  std::vector<int64_t> keys;
  MemoryBlock rows;
  Ref<Storage> memory;

  /// Makes memory for `count` rows.
  void make_room(const RowDim& to, int64_t count, DType dtype, Device device);
  /// Positions of the keys in this rank's part of the dim; of elements, in the flat part.
  std::vector<int64_t> places_in(const RowDim& to) const;
};

/// Sends the rows of ascending, distinct keys to the ranks whose part of `to` has them, over those
/// axes that cut dim `to.dim` of `from`, the tensor that the rows come from, and are in `over`.
/// Along other axes ranks hold the same rows, or parts that are added elsewhere. Returns the rows
/// for this rank in the order of the senders' parts, in each part by key. `mistake` as above.
KeyedRows send_distinct_rows(const RowDim& to, const Layout& from, const Axes& over,
                             std::span<const int64_t> keys, const MemoryBlock& rows,
                             const std::string& mistake = {});

/// Makes the rows of one key one by that mode (sums of halves in f32).
KeyedRows combined_rows(const RowDim& to, std::span<const int64_t> keys, const MemoryBlock& values,
                        WriteMode mode);

/// The axes longer than 1 that cut a dim, or any dim, in mesh order.
Axes axes_cutting(const Layout& layout, std::optional<int> dim = {});

// Shared by rows.cpp and counted_exchange.cpp: rows of one rank.

/// The keys first <= key < last.
struct KeyRange {
  int64_t first, last;
};
/// The keys of the rows that a rank with that box of the tensor has.
KeyRange range_of(const RowDim& rows, const Box& box);

/// Returns the positions of keys of that range in the dim of the block that holds the range; of
/// elements, in the flat block.
std::vector<int64_t> places_of(const RowDim& rows, KeyRange range, std::span<const int64_t> keys);

/// Indices as a block of a device.
class IndexBlock {
 public:
  IndexBlock(std::vector<int64_t> values, Device device);
  operator const MemoryBlock&() const { return block_; }  // NOLINT(google-explicit-constructor)

 private:
  std::vector<int64_t> values_;
  Ref<Storage> memory_;
  MemoryBlock block_;
};

/// Returns a dense block as a vector if `elements` move, or else as it is.
inline MemoryBlock flat_if(bool elements, const MemoryBlock& block) {
  return elements ? dense_block(block.data, block.dtype, {block.numel()}, block.device) : block;
}

int64_t bytes_of_rows(const RowDim& rows, int64_t count, DType dtype);

/// Throws std::invalid_argument on all ranks of the group with the first mistake of one of them;
/// where the policy forbids traffic, a rank throws its own only.
void fail_together(const Communicator& group, const std::string& mistake);

}  // namespace weft
