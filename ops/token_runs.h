// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "weft/ops/sequences.h"

namespace weft {

/// Tokens [begin, begin + count) of a sequence that follow each other in one document; `place` is
/// that of the first.
struct TokenRun {
  int64_t begin, count, place, segment;
  bool operator==(const TokenRun&) const = default;
};

/// Consecutive rows of a batch that have the same runs.
struct RowRuns {
  int64_t first_row, end_row;
  std::vector<TokenRun> runs;
};

/// Queries and keys, counted from the begin of their parts, of which each query attends to at least
/// one key. Query i stands `offset` + i places behind the first key.
struct RunPair {
  int64_t first_row, end_row;
  int64_t query, queries;
  int64_t key, keys;
  int64_t offset;
};

/// This rank's rows of an order that is whole along the sequence, on the host.
class HostOrder {
 public:
  /// The runs of `batch` rows of `sequence` tokens each.
  HostOrder(std::vector<int64_t> places, std::vector<int64_t> segments, int64_t batch,
            int64_t sequence);

  /// The runs of tokens [begin, end), which count from `begin`.
  std::vector<RowRuns> runs(int64_t begin, int64_t end) const;

 private:
  std::vector<TokenRun> runs_of_row(int64_t row, int64_t begin, int64_t end) const;

  std::vector<int64_t> places_, segments_;
  int64_t batch_, sequence_;
};

/// The order of the rows' keys by document and place: runs and where each one goes, and the runs
/// that they form there.
struct SortedRuns {
  std::vector<std::pair<RowRuns, std::vector<int64_t>>> moves;
  std::vector<RowRuns> runs;
  /// Returns whether they are sorted already.
  bool is_sorted = true;

  explicit SortedRuns(const std::vector<RowRuns>& given);
  /// Returns `x` [batch, tokens, ...] in that order, or what is in that order in the first one.
  Tensor sorted(const Tensor& x) const;
  Tensor unsorted(const Tensor& x) const;

 private:
  Tensor moved(const Tensor& x, bool back) const;
};

/// Pairs of runs of which the queries attend to the keys; `window` as in AttentionOptions.
std::vector<RunPair> pairs_of(const std::vector<RowRuns>& queries, const std::vector<RowRuns>& keys,
                              int64_t window);

/// The numbers of a call of attention by pairs.
struct PairOptions {
  double scale, softcap;
  int64_t window;
};

/// out [batch, s, heads, d] and lse [batch, heads, s] of queries, on one device: of the pairs so
/// far.
struct PairResults {
  Tensor out, lse;
  /// Whether a query, of batch * s, has a result.
  std::vector<bool> has_result;

  /// `dtype` is that of `out`, in which parts are merged.
  PairResults(const Tensor& q, DType dtype);
  /// Adds the keys of the pairs.
  void add(const Tensor& q, const Tensor& k, const Tensor& v, const std::vector<RunPair>& pairs,
           const PairOptions& options);

 private:
  bool takes_first(const RunPair& pair);
};

/// Queries of a call, with the final results and the gradient of out, for backward.
struct PairGradients {
  Tensor q, out, lse, dout;
  PairOptions options;

  /// Adds the gradients of the pairs to dq, dk and dv.
  void add(const Tensor& k, const Tensor& v, const std::vector<RunPair>& pairs, const Tensor& dq,
           const Tensor& dk, const Tensor& dv) const;
};

/// The work that the pairs of a call would be, for tensors without memory.
void count_pairs(const Tensor& q, const Tensor& k, const PairOptions& options, bool backward);

}  // namespace weft
