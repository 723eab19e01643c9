// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "mesh/grid.h"
#include "mesh/rows.h"
#include "src/comm/transport.h"
#include "src/kernels/copy/dense.h"

namespace weft {

// Shared by the files of counted exchanges.

/// The keys first <= key < last.
struct KeyRange {
  int64_t first, last;
};
/// The keys of the rows that a rank with that box of the tensor has.
KeyRange range_of(const RowDim& rows, const Box& box);

/// Returns the positions of keys of that range in the dim of the block that holds the range; of
/// elements, in the flat block.
std::vector<int64_t> places_of(const RowDim& rows, KeyRange range, std::span<const int64_t> keys);

/// Returns the positions of the keys in ascending order; of equal ones in the order given.
std::vector<int64_t> order_of_keys(std::span<const int64_t> keys);

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

/// The ranks of one exchange, and which of the rows each of them has.
struct RowRanks {
  RowRanks(const RowDim& rows, const Axes& axes) : grid(*rows.layout->grid) {
    members = grid.members(axes, grid.coordinates());
    for (const int rank : members) ranges.push_back(range_of(rows, rows.layout->box_of(rank)));
    self = std::find(members.begin(), members.end(), grid.rank()) - members.begin();
    group = grid.group(axes);
  }

  MeshGrid& grid;
  std::vector<int> members;
  std::vector<KeyRange> ranges;
  int64_t self;
  Communicator group;
};

/// A run of ascending keys: positions begin to end.
struct KeyRun {
  size_t begin, end;
  int64_t count() const { return static_cast<int64_t>(end - begin); }
};
KeyRun run_of(std::span<const int64_t> keys, KeyRange range);

inline std::span<const int64_t> part_of(std::span<const int64_t> keys, KeyRun run) {
  return keys.subspan(run.begin, run.end - run.begin);
}

/// The rows of a block at the positions of the run.
MemoryBlock rows_of(const RowDim& rows, const MemoryBlock& block, KeyRun run);

/// Reads the rows of `keys` out of the dense block of the rank that has that range.
void read_rows(const RowDim& rows, const MemoryBlock& block, KeyRange range,
               std::span<const int64_t> keys, const MemoryBlock& out);

inline int64_t sum_of(std::span<const int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

int64_t bytes_of_rows(const RowDim& rows, int64_t count, DType dtype);

/// A hash of an exchange: equal on its ranks.
uint64_t content_of(const RowDim& rows, bool is_sent);

/// The block that a rank with a mistake shows to the others: it has no dims.
class Shown {
 public:
  Shown(const MemoryBlock& block, bool is_wrong) : dense_(DenseBlock::of(block)) {
    shown = dense_;
    if (!is_wrong) return;
    memory_ = Storage::allocate(size_of(block.dtype), block.device);
    shown = dense_block(memory_->data(), block.dtype, {}, block.device);
    fill(shown, 0);
  }
  static bool is_mistake(const void* block) {
    return block && static_cast<const MemoryBlock*>(block)->shape.ndim() == 0;
  }

  MemoryBlock shown;

 private:
  DenseBlock dense_;
  Ref<Storage> memory_;
};

/// One all_to_all. `counts` of elements go to each rank and `recv_counts` come.
void send_all(const Communicator& group, const void* send, std::span<const int64_t> counts,
              void* recv, std::span<const int64_t> recv_counts, DType dtype, Device device = cpu);

/// Keys that ranks have sent each other by all_to_all, and the run of each rank's keys among those
/// sent and received.
struct RowLetters {
  std::vector<KeyRun> runs, received_runs;
  std::vector<int64_t> received;
};
/// Sends each rank its part of the keys. A mistake of any rank fails on all.
RowLetters sent_keys(const RowRanks& ranks, std::span<const int64_t> keys,
                     const std::string& mistake);

/// Memory for the rows of one rank after the other.
class RowBuffer {
 public:
  /// The i-th rank has as many rows as run i has keys.
  RowBuffer(const RowDim& rows, std::span<const KeyRun> runs, const MemoryBlock& like);
  /// Sends each rank its rows by all_to_all; those of the ranks come to `to`.
  void send(const Communicator& group, const RowBuffer& to) const;
  MemoryBlock next(int64_t count);

 private:
  const RowDim& rows_;
  /// The number of elements for each rank.
  std::vector<int64_t> elements_;
  DType dtype_;
  Device device_;
  Ref<Storage> memory_;
  char* next_;
};

}  // namespace weft
