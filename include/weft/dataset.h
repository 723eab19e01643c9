// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weft/export.h"

namespace weft {

/// The memory into which a dataset writes rows: each span is [rows, sequence], row-major.
struct RowSpans {
  /// Ids of tokens.
  std::span<int64_t> ids;
  /// The token that follows each; kIgnoredTarget where it does not count for the loss.
  std::span<int64_t> targets;
  /// The number of each token's document within its row, counted from 0; empty unless the dataset
  /// has_segments(). See AttentionOptions::segments.
  std::span<int64_t> segments = {};
};

/// Rows of tokens to train on, or to evaluate on. Training reads them in the order of their
/// indices, without an end: step s (from 1) of batches of b rows reads rows [(s - 1) b, s b). What
/// a row holds follows from its index and the dataset's seed alone, whatever the ranks and threads.
class WEFT_API Dataset {
 public:
  virtual ~Dataset() = default;
  /// Tokens of a row.
  virtual int64_t sequence() const = 0;
  /// Rows of an epoch; kEndless or more where there is no end.
  virtual int64_t rows() const = 0;
  static constexpr int64_t kEndless = int64_t{1} << 40;
  /// True when rows hold several documents, whose tokens do not attend to each other.
  virtual bool has_segments() const { return false; }
  /// Returns whether targets may be kIgnoredTarget; if so, trainers count the others.
  virtual bool has_masks() const { return true; }
  /// Tokens that the rows are made of; 0: unknown.
  virtual int64_t tokens() const { return 0; }
  /// Writes rows from index `first` on. Several threads may read at once. std::runtime_error names
  /// a file that cannot be read or has changed.
  virtual void read(int64_t first, const RowSpans& into) const = 0;
  /// Names and digests of what decides the rows: compared across ranks, saved with checkpoints and
  /// compared on resume. May read whole files.
  virtual std::vector<std::pair<std::string, uint64_t>> digests() const { return {}; }
  /// Says what the rows are made of: "7000 tokens in 3 files".
  virtual std::string description() const { return {}; }
};

}  // namespace weft
