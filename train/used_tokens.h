// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "weft/communicator.h"
#include "weft/dataset.h"

namespace weft {

/// Rows [first, first + count) of each micro-batch.
struct RowRange {
  int64_t first = 0;
  int64_t count = 0;
  auto operator<=>(const RowRange&) const = default;
};

/// Memory for rows of a dataset.
class RowBuffer {
 public:
  RowBuffer() = default;
  RowBuffer(int64_t rows, int64_t sequence, bool has_segments);
  RowSpans spans() { return {ids_, targets_, segments_}; }

 private:
  std::vector<int64_t> ids_, targets_, segments_;
};

/// Reads a rank's rows of the data and keeps a digest of them: the sum, modulo 2^64, of a hash of
/// each row with its step and its index in the step's batch. The sum over all rows does not depend
/// on the number of ranks. Where ranks are processes, which open the files separately, each one
/// also reads the rows of the next rank, so that `compare` finds ranks whose data differ.
class UsedTokens {
 public:
  /// `batch` is the number of rows of a step, `rows` are this rank's of a micro-batch. `held_out`
  /// may be null. Collective.
  UsedTokens(const Communicator& world, const Dataset& data, const Dataset* held_out, int64_t batch,
             const RowRange& rows);

  /// Reads this rank's rows of the micro-batch that begins at row `before` of the batch of `step`
  /// (from 1; 0: of the held-out rows). The spans have the rows' size.
  void read(int64_t step, int64_t before, const RowSpans& into);

  /// True when rows to train on, or held-out ones, have segments.
  bool has_segments() const {
    return data_.has_segments() || (held_out_ && held_out_->has_segments());
  }

  /// True when no rank before this one reads the same rows.
  bool reads_first() const { return same_[static_cast<size_t>(world_.rank())] == world_.rank(); }

  /// Throws std::invalid_argument on all ranks, naming two of them, when they read different tokens
  /// since the last comparison. Collective.
  void compare();

  /// Returns what a checkpoint keeps, as of the last comparison: the digest of all tokens used to
  /// train and that of the last steps alone.
  std::map<std::string, int64_t> numbers() const;
  /// Continues from the numbers of a checkpoint, "run/<name>". With `reads_again`, reads the rows
  /// of its last steps, and throws std::invalid_argument on all ranks when other tokens were used
  /// then. Collective.
  /// `are_flags` as in ResumeOptions.
  void resume(const std::map<std::string, int64_t>& saved, bool reads_again, bool are_flags);

 private:
  uint64_t read_and_hash(int64_t step, int64_t first, const RowSpans& into) const;

  /// The sums that ranks exchange: those since the last comparison, `own` and `next` with held-out
  /// rows, `trained` and `recent` (the last steps) without.
  struct Sums {
    uint64_t own = 0, next = 0, trained = 0, recent = 0;
  };

  Communicator world_;
  const Dataset& data_;
  const Dataset* held_out_;
  int64_t batch_;
  /// The rows of each rank, the first rank that has the same ones, and the rank whose rows it reads
  /// too (-1: none).
  std::vector<RowRange> rows_;
  std::vector<int> same_, next_;
  RowBuffer next_rows_;
  Sums sums_;
  /// The steps of `sums_`, and this rank's sum of each of the last ones.
  int64_t first_step_ = 0, last_step_ = 0;
  std::deque<uint64_t> recent_;
  /// Sums over all ranks.
  uint64_t total_ = 0, recent_total_ = 0;
  int64_t recent_first_ = 0, recent_last_ = 0;
};

}  // namespace weft
