// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "checkpoint/rank_file.h"
#include "weft/extend/disk_memory.h"

namespace weft {

/// A rank's bytes in the order of its file, where they lie in memory. Parts that are on another
/// device, or not dense, are copied when they are visited, one at a time; those on disk pass
/// through a buffer.
class Snapshot {
 public:
  Snapshot(const RankFiles& files, int rank, const StateDict& state);

  /// Bytes from `begin` to `end` of the data, piece by piece.
  template <class F> void for_bytes(int64_t begin, int64_t end, const F& visit) {
    int64_t at = 0;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const int64_t size = pieces_[i].bytes;
      const int64_t from = std::max(begin, at), to = std::min(end, at + size);
      if (from < to) {
        visit_piece(i, from - at, to - at, visit);
      }
      at += size;
    }
  }
  /// Bytes up to the end of the last piece that rests on disk.
  int64_t end_on_disk() const;
  /// Lets go of all tensors.
  void clear() { pieces_.clear(), copy_ = {}, read_ = {}; }

 private:
  struct Piece {
    Tensor local;
    int64_t bytes;
    bool on_disk;
  };
  template <class F> void visit_piece(size_t index, int64_t begin, int64_t end, const F& visit) {
    if (!pieces_[index].on_disk) {
      return visit(std::span(data_of(index) + begin, static_cast<size_t>(end - begin)));
    }
    while (begin < end) {
      const std::span<const std::byte> part = read_at(index, begin, end);
      visit(part);
      begin += static_cast<int64_t>(part.size());
    }
  }
  const std::byte* data_of(size_t index);
  std::span<const std::byte> read_at(size_t index, int64_t begin, int64_t end);

  std::vector<Piece> pieces_;
  /// A copy of piece `copied_`.
  Tensor copy_;
  size_t copied_ = 0;
  /// Blocks that were read from disk.
  DiskBuffer read_;
};

}  // namespace weft
