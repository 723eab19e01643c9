// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "checkpoint/rank_file.h"

namespace weft {

/// A rank's bytes in the order of its file, where they lie in memory. Parts that are on another
/// device, or not dense, are copied when they are visited, one at a time.
class Snapshot {
 public:
  Snapshot(const RankFiles& files, int rank, const StateDict& state);

  /// Bytes from `begin` to `end` of the data, piece by piece.
  template <class F>
  void for_bytes(int64_t begin, int64_t end, const F& visit) {
    int64_t at = 0;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const int64_t size = pieces_[i].bytes;
      const int64_t from = std::max(begin, at), to = std::min(end, at + size);
      if (from < to) {
        visit(std::span(data_of(i) + (from - at), static_cast<size_t>(to - from)));
      }
      at += size;
    }
  }
  /// Lets go of all tensors.
  void clear() { pieces_.clear(), copy_ = {}; }

 private:
  struct Piece {
    Tensor local;
    int64_t bytes;
  };
  const std::byte* data_of(size_t index);

  std::vector<Piece> pieces_;
  /// A copy of piece `copied_`.
  Tensor copy_;
  size_t copied_ = 0;
};

}  // namespace weft
