// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "mesh/plan.h"
#include "ops/token_runs.h"

namespace weft {

/// Parts of a rank's keys that go around the ring one after the other: with one part on its way out
/// and one coming in, a rank holds 1.25 times its own keys.
inline constexpr int64_t kRingParts = 8;

/// Attention with keys that go from rank to rank along one axis. In step s a rank has a part of the
/// keys of the rank s before it; the results of the parts are merged.
class Ring {
 public:
  /// `kv`: layout of keys and values, which `axis` of the root mesh cuts along dim 1.
  Ring(Ref<Layout> kv, int axis, const HostOrder& order, std::vector<RowRuns> queries,
       const PairOptions& options);

  void forward(const Tensor& q, const Tensor& k, const Tensor& v, PairResults& results) const;
  /// Adds to dq, dk and dv, whose parts for other ranks' keys go back to them.
  void backward(const PairGradients& gradients, const Tensor& k, const Tensor& v, const Tensor& dq,
                const Tensor& dk, const Tensor& dv) const;
  /// Counts the work, and what moves, for tensors without memory.
  void count(const Tensor& q, const Tensor& k, bool backward) const;

 private:
  /// Tokens of a part of a rank's keys, counted in the whole sequence.
  struct Range {
    int64_t begin, end;
    int64_t count() const { return end - begin; }
  };
  Range part(int rank, int64_t index) const;
  int from(int step) const { return (rank_ + ranks_ - step) % ranks_; }
  int to(int step) const { return (rank_ + step) % ranks_; }
  std::vector<RunPair> pairs(const Range& keys) const {
    return pairs_of(queries_, order_.runs(keys.begin, keys.end), options_.window);
  }
  void log(bool backward, DType sums) const;
  /// Sends `x` to one rank and returns what another one sends, of this shape.
  Tensor exchanged(const Tensor& x, int to, int from, const Shape& shape) const;
  /// Keys and values [2, batch, tokens, ...] of a part of this rank.
  Tensor packed(const Tensor& k, const Tensor& v, const Range& range) const;

  Ref<Layout> kv_;
  Communicator communicator_;
  int rank_, ranks_;
  /// The first token of each rank and the one after its last.
  std::vector<Range> boxes_;
  const HostOrder& order_;
  std::vector<RowRuns> queries_;
  PairOptions options_;
};

}  // namespace weft
