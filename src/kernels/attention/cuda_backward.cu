// SPDX-License-Identifier: Apache-2.0

#include "src/device/cuda/runtime.h"
#include "src/kernels/attention/call.h"
#include "src/kernels/attention/cuda_rule.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/storage.h"

namespace weft::cuda {

// With P = exp(scale * Q K^T - lse) and delta = rowsum(dO * O):
//   dS = P * (dO V^T - delta),  dQ = scale * dS K,  dK = scale * dS^T Q,  dV = P^T dO.
// One kernel owns rows of dQ, another rows of dK and dV: each adds in a fixed order, and none adds
// to another's rows. (FlashAttention-2, arXiv:2307.08691, algorithm 2.)

namespace {

template <class C> struct BackwardSides {
  AttentionSide q, k, v, out, dout, dq, dk, dv;
  LseSide<C> lse;
  /// [batch, heads, queries], dense.
  C* delta;
};

/// Returns how many keys from `first_key` on are visible to query `i` of a strip.
WEFT_FN inline int64_t keys_after(const AttentionSizes& call, const Strip& queries, int i,
                                  int64_t first_key) {
  return i < queries.count ? call.seen(queries.first + i) - first_key : 0;
}
/// Returns how many of them come before the first visible one.
WEFT_FN inline int64_t keys_before(const AttentionSizes& call, const Strip& queries, int i,
                                   int64_t first_key) {
  return call.first_key(queries.first + i) - first_key;
}

/// Shared memory of a thread block: four operands, a tile of scores, two numbers per query.
template <class C, class Tiles> struct BackwardMemory {
  static constexpr size_t kBytes =
      sizeof(C) * (4 * Tiles::kOperand + Tiles::kScores + 2 * Tiles::kTile);
  C *first, *second = first + Tiles::kOperand, *third = second + Tiles::kOperand;
  C *fourth = third + Tiles::kOperand, *scores = fourth + Tiles::kOperand;
  C *lse = scores + Tiles::kScores, *delta = lse + Tiles::kTile;
};

/// Each thread block computes delta and dQ of one tile of queries.
template <class C, int kWidth, class Rule> struct QueryGradients {
  using Tiles = AttentionTiles<C, kWidth>;
  using Memory = BackwardMemory<C, Tiles>;
  static constexpr int kTile = Tiles::kTile;

  AttentionSizes call;
  BackwardSides<C> x;
  int64_t tiles;
  Rule rule;
  /// The gradient of an added mask; without data when none is needed.
  MaskGradient<C> dmask;

  template <class ThreadBlock> WEFT_DEVICE void operator()(const ThreadBlock& block) const {
    const Memory m{block.template shared<C>()};
    C *queries = m.first, *dout = m.second, *keys = m.third, *values = m.fourth;
    const Strip mine = query_strip(call, tiles, kTile, block.index());
    const int64_t kv_head = mine.head / call.group, seen = call.seen(mine.first + mine.count - 1);
    const int width = static_cast<int>(call.width);
    const C scale = static_cast<C>(call.scale);
    Tiles::load(block, queries, x.q, mine, width, scale);
    Tiles::load(block, dout, x.dout, mine, width);
    Tiles::load(block, values, x.out, mine, width);
    find_deltas(block, m, mine);
    typename Tiles::Result sums[kOwned] = {};
    for (int64_t first = call.first_key(mine.first) / kTile * kTile; first < seen; first += kTile) {
      const Strip theirs{mine.batch, kv_head, first, seen - first < kTile ? seen - first : kTile};
      if (rule.hides(block, call, mine, first, kTile)) continue;
      Tiles::load(block, keys, x.k, theirs, width);
      Tiles::load(block, values, x.v, theirs, width);
      block.sync();
      for (int o = 0; o < kOwned; ++o) {
        const int owner = block.thread() + o * kAttentionThreads;
        auto scores = Tiles::multiply_rows(owner, queries, keys);
        const auto products = Tiles::multiply_rows(owner, dout, values);
        differentiate(owner, m, mine, first, scores, products);
        Tiles::put(owner, m.scores, scores);
      }
      block.sync();
      for (int o = 0; o < kOwned; ++o) {
        Tiles::add_product(block.thread() + o * kAttentionThreads, m.scores, keys, sums[o]);
      }
      block.sync();
    }
    for (int o = 0; o < kOwned; ++o) {
      Tiles::store(block.thread() + o * kAttentionThreads, x.dq, mine, width, sums[o], scale);
    }
  }

  /// Computes deltas from dout and from out, which occupies the memory that values use later.
  template <class ThreadBlock>
  WEFT_DEVICE void find_deltas(const ThreadBlock& block, const Memory& m, const Strip& mine) const {
    block.sync();
    for (int row = block.thread(); row < mine.count; row += block.threads()) {
      const C *dout = m.second + row * Tiles::kRow, *out = m.fourth + row * Tiles::kRow;
      C sum = C(0);
      for (int column = 0; column < kWidth; ++column) sum += dout[column] * out[column];
      const int64_t query = mine.first + row;
      m.delta[row] = sum;
      m.lse[row] = x.lse.of(mine.batch, mine.head, query);
      x.delta[(mine.batch * call.heads + mine.head) * call.queries + query] = sum;
    }
    block.sync();
  }

  /// Replaces an owner's scores by their gradients.
  WEFT_DEVICE void differentiate(int owner, const Memory& m, const Strip& mine, int64_t first_key,
                                 typename Tiles::Scores& scores,
                                 const typename Tiles::Scores& products) const {
    WEFT_UNROLL
    for (int i = 0; i < Tiles::kM; ++i) {
      const int row = owner / kSide + i * kSide;
      const int64_t keys = keys_after(call, mine, row, first_key);
      const int64_t begin = keys_before(call, mine, row, first_key);
      const C lse = m.lse[row], delta = m.delta[row];
      WEFT_UNROLL
      for (int j = 0; j < Tiles::kM; ++j) {
        const int key = owner % kSide + j * kSide;
        C slope = C(1), score = scores.at[i][j];
        const bool inside = key >= begin && key < keys;
        if (inside) score = rule.changed(call, mine, row, first_key + key, score, slope);
        const bool sees = inside && !Rule::hides(score);
        const C p = sees ? exp(score - lse) : C(0);
        const C product =
            sees ? rule.kept(call, mine, row, first_key + key, products.at[i][j]) : C(0);
        const C gradient = sees ? p * (product - delta) : C(0);
        if (sees) dmask.add(call, mine, row, first_key + key, gradient);
        scores.at[i][j] = gradient * slope;
      }
    }
  }
};

/// Each thread block computes dK and dV of one tile of keys, from all queries of its heads.
template <class C, int kWidth, class Rule> struct KeyGradients {
  using Tiles = AttentionTiles<C, kWidth>;
  using Memory = BackwardMemory<C, Tiles>;
  static constexpr int kTile = Tiles::kTile;

  AttentionSizes call;
  BackwardSides<C> x;
  Rule rule;

  WEFT_DEVICE Strip place(int64_t block) const {
    const int64_t heads = call.batch * call.kv_heads, first = block / heads * kTile;
    const int64_t left = call.keys - first;
    return {block % heads / call.kv_heads, block % call.kv_heads, first,
            left < kTile ? left : kTile};
  }

  struct Sums {
    typename Tiles::Result keys[kOwned], values[kOwned];
  };

  template <class ThreadBlock> WEFT_DEVICE void operator()(const ThreadBlock& block) const {
    const Memory m{block.template shared<C>()};
    const Strip mine = place(block.index());
    const int width = static_cast<int>(call.width);
    Tiles::load(block, m.first, x.k, mine, width);
    Tiles::load(block, m.second, x.v, mine, width);
    Sums sums = {};
    for (int64_t g = 0; g < call.group; ++g) {
      const int64_t head = mine.head * call.group + g;
      const int64_t end = call.end_query(mine.first + mine.count - 1);
      for (int64_t first = call.first_query(mine.first) / kTile * kTile; first < end;
           first += kTile) {
        const int64_t left = call.queries - first;
        const Strip theirs{mine.batch, head, first, left < kTile ? left : kTile};
        if (!rule.hides(block, call, theirs, mine.first, kTile)) {
          add(block, m, mine, theirs, sums);
        }
      }
    }
    for (int o = 0; o < kOwned; ++o) {
      const int owner = block.thread() + o * kAttentionThreads;
      Tiles::store(owner, x.dk, mine, width, sums.keys[o], C(1));
      Tiles::store(owner, x.dv, mine, width, sums.values[o], C(1));
    }
  }

  /// Adds the contribution of the queries of a strip.
  template <class ThreadBlock>
  WEFT_DEVICE void add(const ThreadBlock& block, const Memory& m, const Strip& mine,
                       const Strip& theirs, Sums& sums) const {
    C *keys = m.first, *values = m.second, *queries = m.third, *dout = m.fourth;
    load_queries(block, m, theirs);
    block.sync();
    typename Tiles::Scores gradients[kOwned];
    for (int o = 0; o < kOwned; ++o) {
      const int owner = block.thread() + o * kAttentionThreads;
      auto scores = Tiles::multiply_rows(owner, keys, queries);
      gradients[o] = Tiles::multiply_rows(owner, values, dout);
      differentiate(owner, m, mine, theirs, scores, gradients[o]);
      Tiles::put(owner, m.scores, scores);
    }
    block.sync();
    for (int o = 0; o < kOwned; ++o) {
      Tiles::add_product(block.thread() + o * kAttentionThreads, m.scores, dout, sums.values[o]);
    }
    block.sync();
    for (int o = 0; o < kOwned; ++o) {
      Tiles::put(block.thread() + o * kAttentionThreads, m.scores, gradients[o]);
    }
    block.sync();
    for (int o = 0; o < kOwned; ++o) {
      Tiles::add_product(block.thread() + o * kAttentionThreads, m.scores, queries, sums.keys[o]);
    }
    block.sync();
  }

  template <class ThreadBlock>
  WEFT_DEVICE void load_queries(const ThreadBlock& block, const Memory& m,
                                const Strip& theirs) const {
    const int width = static_cast<int>(call.width);
    Tiles::load(block, m.third, x.q, theirs, width, static_cast<C>(call.scale));
    Tiles::load(block, m.fourth, x.dout, theirs, width);
    const int64_t row = (theirs.batch * call.heads + theirs.head) * call.queries + theirs.first;
    for (int i = block.thread(); i < theirs.count; i += block.threads()) {
      m.lse[i] = x.lse.of(theirs.batch, theirs.head, theirs.first + i);
      m.delta[i] = x.delta[row + i];
    }
  }

  /// Replaces an owner's scores by probabilities and its products by the gradients of the scores.
  WEFT_DEVICE void differentiate(int owner, const Memory& m, const Strip& mine, const Strip& theirs,
                                 typename Tiles::Scores& scores,
                                 typename Tiles::Scores& products) const {
    WEFT_UNROLL
    for (int j = 0; j < Tiles::kM; ++j) {
      const int query = owner % kSide + j * kSide;
      const int64_t keys = keys_after(call, theirs, query, mine.first);
      const int64_t begin = keys_before(call, theirs, query, mine.first);
      const C lse = m.lse[query], delta = m.delta[query];
      WEFT_UNROLL
      for (int i = 0; i < Tiles::kM; ++i) {
        const int key = owner / kSide + i * kSide;
        C slope = C(1), score = scores.at[i][j];
        const bool inside = key >= begin && key < keys;
        if (inside) score = rule.changed(call, theirs, query, mine.first + key, score, slope);
        const bool seen = inside && !Rule::hides(score);
        const C p = seen ? exp(score - lse) : C(0), product = products.at[i][j];
        const int64_t at = mine.first + key;
        scores.at[i][j] = seen ? rule.kept(call, theirs, query, at, p) : C(0);
        products.at[i][j] =
            seen ? p * (rule.kept(call, theirs, query, at, product) - delta) * slope : C(0);
      }
    }
  }
};

}  // namespace

template <class C, class Rule>
static void differentiate_in(const AttentionSizes& sizes, const Rule& rule,
                             const AttentionGradients& x) {
  const Stream stream = current_stream(x.q.device);
  const auto rows = static_cast<size_t>(sizes.batch * sizes.heads * sizes.queries);
  const Ref<Storage> deltas = Storage::allocate(rows * sizeof(C), x.q.device);
  C* const delta = rows > 0 ? static_cast<C*>(deltas->data()) : nullptr;
  const BackwardSides<C> sides{x.q, x.k, x.v, x.out, x.dout, x.dq, x.dk, x.dv, x.lse, delta};
  with_attention_tiles<C>(sizes.width, [&]<int kWidth>(AttentionTiles<C, kWidth>) {
    using OfQueries = QueryGradients<C, kWidth, Rule>;
    constexpr int kTile = OfQueries::kTile;
    const int64_t query_tiles = (sizes.queries + kTile - 1) / kTile;
    const int64_t key_tiles = (sizes.keys + kTile - 1) / kTile;
    launch_blocks<kAttentionThreads>(
        OfQueries{sizes, sides, query_tiles, rule, MaskGradient<C>(x.dmask, sizes)},
        query_tiles * sizes.batch * sizes.heads, OfQueries::Memory::kBytes, stream);
    launch_blocks<kAttentionThreads>(KeyGradients<C, kWidth, Rule>{sizes, sides, rule},
                                     key_tiles * sizes.batch * sizes.kv_heads,
                                     OfQueries::Memory::kBytes, stream);
  });
}

void attend_backward(const AttentionSizes& sizes, const AttentionGradients& x) {
  const int64_t scores = sizes.batch * sizes.heads * sizes.queries * sizes.keys;
  if (x.dmask.data && x.dmask.numel() < scores && uses_deterministic_algorithms()) {
    fail(
        "attention: gradient of a mask that broadcasts is added in any order on cuda, expected "
        "deterministic algorithms; expand the mask");
  }
#ifdef WEFT_WITH_CUDNN
  if (!x.options.has_rule() && sizes.window == 0 && attend_backward_by_cudnn(sizes, x)) return;
#endif
  with_rule(sizes, x.options, x.q.dtype,
            [&]<class C>(Type<C>, const auto& rule) { differentiate_in<C>(sizes, rule, x); });
}

}  // namespace weft::cuda
