// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "checkpoint/rank_file.h"

namespace weft {

/// A rank's bytes in the order of its file, where they lie in memory; keeps what it made alive.
class Snapshot {
 public:
  /// The tensors' own memory; parts that are not dense in memory are copied.
  Snapshot(const RankFiles& files, int rank, const StateDict& state);

  /// Bytes from `begin` to `end` of the data, piece by piece.
  template <class F>
  void for_bytes(int64_t begin, int64_t end, const F& visit) const {
    int64_t at = 0;
    for (const auto& piece : pieces_) {
      const auto size = static_cast<int64_t>(piece.size());
      const int64_t from = std::max(begin, at), to = std::min(end, at + size);
      if (from < to) {
        visit(piece.subspan(static_cast<size_t>(from - at), static_cast<size_t>(to - from)));
      }
      at += size;
    }
  }

 private:
  std::vector<std::span<const std::byte>> pieces_;
  Tensors copies_;
};

}  // namespace weft
