// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "src/device/cuda/runtime.h"
#include "src/kernels/attention/call.h"
#include "src/kernels/attention/cuda_rule.h"

namespace weft::cuda {

namespace {

/// Each thread block processes one tile of queries against all visible keys. It keeps a running
/// maximum and total per row, and rescales earlier sums when the maximum grows (online softmax).
template <class C, int kWidth, class Rule> struct AttendTile {
  using Tiles = AttentionTiles<C, kWidth>;
  static constexpr int kTile = Tiles::kTile;
  /// Threads per row of scores, each of which handles every kParts-th score.
  static constexpr int kParts = 4;

  AttentionSizes call;
  AttentionSide q, k, v, out;
  LseSide<C> lse;
  int64_t tiles;
  Rule rule;

  /// Shared memory of a thread block; keys and values alternate in one operand.
  struct Memory {
    static constexpr size_t kBytes =
        sizeof(C) * (2 * Tiles::kOperand + Tiles::kScores + (2 + 2 * kParts) * kTile);
    C *queries, *keys = queries + Tiles::kOperand, *scores = keys + Tiles::kOperand;
    C *max = scores + Tiles::kScores, *factor = max + kTile;
    C *most = factor + kTile, *total = most + kParts * kTile;
  };

  template <class ThreadBlock> WEFT_DEVICE void operator()(const ThreadBlock& block) const {
    const Memory m{block.template shared<C>()};
    const Strip at = query_strip(call, tiles, kTile, block.index());
    const int64_t kv_head = at.head / call.group, seen = call.seen(at.first + at.count - 1);
    const int width = static_cast<int>(call.width);
    Tiles::load(block, m.queries, q, at, width, static_cast<C>(call.scale));
    begin_rows(block, m);
    typename Tiles::Result sums[kOwned] = {};
    for (int64_t first = call.first_key(at.first) / kTile * kTile; first < seen; first += kTile) {
      const Strip keys{at.batch, kv_head, first, seen - first < kTile ? seen - first : kTile};
      if (rule.hides(block, call, at, first, kTile)) continue;
      Tiles::load(block, m.keys, k, keys, width);
      block.sync();
      for (int o = 0; o < kOwned; ++o) {
        const int owner = block.thread() + o * kAttentionThreads;
        auto scores = Tiles::multiply_rows(owner, m.queries, m.keys);
        rule.template change<Tiles>(call, owner, at, first, scores);
        Tiles::put(owner, m.scores, scores);
      }
      block.sync();
      Tiles::load(block, m.keys, v, keys, width);
      soften(block, m, at, first);
      for (int o = 0; o < kOwned; ++o) {
        const int owner = block.thread() + o * kAttentionThreads;
        shrink(owner, m.factor, sums[o]);
        Tiles::add_product(owner, m.scores, m.keys, sums[o]);
      }
      block.sync();
    }
    end_rows(block, m, at);
    for (int o = 0; o < kOwned; ++o) {
      Tiles::store(block.thread() + o * kAttentionThreads, out, at, width, sums[o], C(1), m.factor);
    }
  }

  template <class ThreadBlock>
  WEFT_DEVICE static void begin_rows(const ThreadBlock& block, const Memory& m) {
    for (int i = block.thread(); i < kParts * kTile; i += block.threads()) m.total[i] = C(0);
    for (int row = block.thread(); row < kTile; row += block.threads()) {
      m.max[row] = -std::numeric_limits<C>::infinity();
    }
  }

  /// Returns the number of the tile's keys that a row sees.
  WEFT_DEVICE int visible(const Strip& at, int row, int64_t first) const {
    if (row >= at.count) return 0;
    const int64_t seen = call.seen(at.first + row) - first;
    return static_cast<int>(seen < 0 ? 0 : seen < kTile ? seen : kTile);
  }
  /// Returns the first of the tile's keys that a row sees, if it sees any.
  WEFT_DEVICE int first_visible(const Strip& at, int row, int64_t first) const {
    const int64_t hidden = call.first_key(at.first + row) - first;
    return static_cast<int>(hidden < 0 ? 0 : hidden < kTile ? hidden : kTile);
  }

  /// Replaces scores by exp(score - maximum), and by zero where a row does not see a key.
  template <class ThreadBlock>
  WEFT_DEVICE void soften(const ThreadBlock& block, const Memory& m, const Strip& at,
                          int64_t first) const {
    for (int i = block.thread(); i < kParts * kTile; i += block.threads()) {
      const int row = i / kParts, part = i % kParts, keys = visible(at, row, first);
      const int begin = first_visible(at, row, first);
      const C* scores = m.scores + row * Tiles::kScoreRow;
      C most = -std::numeric_limits<C>::infinity();
      for (int key = part; key < keys; key += kParts) {
        most = key >= begin && scores[key] > most ? scores[key] : most;
      }
      m.most[i] = most;
    }
    block.sync();
    for (int row = block.thread(); row < kTile; row += block.threads()) {
      const C before = m.max[row];
      C max = before;
      for (int part = 0; part < kParts; ++part) {
        const C most = m.most[row * kParts + part];
        max = most > max ? most : max;
      }
      m.max[row] = max;
      m.factor[row] = before == max ? C(1) : exp(before - max);
    }
    block.sync();
    for (int i = block.thread(); i < kParts * kTile; i += block.threads()) {
      const int row = i / kParts, part = i % kParts, keys = visible(at, row, first);
      const int begin = first_visible(at, row, first);
      C* scores = m.scores + row * Tiles::kScoreRow;
      const C max = m.max[row];
      C total = m.total[i] * m.factor[row];
      for (int key = part; key < kTile; key += kParts) {
        const bool sees = key >= begin && key < keys && !Rule::hides(scores[key]);
        const C value = sees ? exp(scores[key] - max) : C(0);
        scores[key] = rule.kept(call, at, row, first + key, value);
        total += value;
      }
      m.total[i] = total;
    }
    block.sync();
  }

  WEFT_DEVICE static void shrink(int owner, const C* factors, typename Tiles::Result& sums) {
    WEFT_UNROLL
    for (int i = 0; i < Tiles::kM; ++i) {
      const C factor = factors[owner / kSide + i * kSide];
      WEFT_UNROLL
      for (int c = 0; c < 4 * Tiles::kFours; ++c) sums.at[i][c] *= factor;
    }
  }

  /// Writes the logsumexp of each row, and to `factor` the scale of its sums.
  template <class ThreadBlock>
  WEFT_DEVICE void end_rows(const ThreadBlock& block, const Memory& m, const Strip& at) const {
    block.sync();
    for (int row = block.thread(); row < at.count; row += block.threads()) {
      C total = C(0);
      for (int part = 0; part < kParts; ++part) total += m.total[row * kParts + part];
      C max = m.max[row];
      const C factor = rule.add_sink(call, at, max, total);
      m.factor[row] = total > 0 ? factor / total : total;
      // -inf when the row sees no key.
      if (lse.data) lse.of(at.batch, at.head, at.first + row) = max + log(total);
    }
    block.sync();
  }
};

}  // namespace

template <class C, class Rule>
static void attend_in(const AttentionSizes& sizes, const Rule& rule, const AttentionOperands& x) {
  const Stream stream = current_stream(x.q.device);
  with_attention_tiles<C>(sizes.width, [&]<int kWidth>(AttentionTiles<C, kWidth>) {
    using Kernel = AttendTile<C, kWidth, Rule>;
    const int64_t tiles = (sizes.queries + Kernel::kTile - 1) / Kernel::kTile;
    const Kernel kernel{sizes, x.q, x.k, x.v, x.out, x.lse, tiles, rule};
    launch_blocks<kAttentionThreads>(kernel, tiles * sizes.batch * sizes.heads,
                                     Kernel::Memory::kBytes, stream);
  });
}

void attend(const AttentionSizes& sizes, const AttentionOperands& x) {
#ifdef WEFT_WITH_CUDNN
  if (!x.options.has_rule() && sizes.window == 0 && attend_by_cudnn(sizes, x)) return;
#endif
  with_rule(sizes, x.options, x.q.dtype,
            [&]<class C>(Type<C>, const auto& rule) { attend_in<C>(sizes, rule, x); });
}

}  // namespace weft::cuda
