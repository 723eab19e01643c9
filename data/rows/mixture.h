// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace weft::rows {

/// Decides the source of each row. Of each block of 1,024 rows, every source has its share, in an
/// order that the seed and the block's number decide; its own rows follow each other.
class Mixture {
 public:
  /// std::invalid_argument for weights that are not above 0, or below 1/1024 of their sum.
  Mixture(std::span<const double> weights, uint64_t seed);
  /// The source of row `index`, and the number of its rows that are before it.
  std::pair<size_t, int64_t> at(int64_t index) const;

 private:
  struct Place {
    size_t source = 0;
    int64_t number = 0;
  };
  std::vector<Place> places_of(int64_t block) const;
  /// Rows of the first `source` sources in all blocks before `block`.
  int64_t rows_before(size_t source, int64_t block) const;

  /// Sums of the shares, in units of 2^-40.
  std::vector<uint64_t> ends_;
  uint64_t seed_;
  /// The block that was asked for last, and its places.
  mutable std::mutex mutex_;
  mutable int64_t block_ = -1;
  mutable std::vector<Place> places_;
};

}  // namespace weft::rows
