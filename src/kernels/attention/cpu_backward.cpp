// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "src/base/independent.h"
#include "src/base/numeric.h"
#include "src/kernels/attention/score_tiles.h"
#include "src/kernels/attention/tiles.h"
#include "src/kernels/math/math.h"
#include "src/kernels/matmul/tasks.h"

namespace weft {

// With P = exp(scale * K Q^T - lse), transposed as in the forward, [keys, rows]:
//   dV = P dO,  dP = V dO^T,  dS = P * (dP - rowsum(dO * O)),  dK = scale * dS Q,  dQ^T = scale *
//   K^T dS.
// Queries are packed times the scale; bf16 queries without it: scores and dK are scaled instead.
// (FlashAttention-2, arXiv:2307.08691, algorithm 2.)

/// One thread's memory. Per key head: the keys, their columns, the values and both gradients. Per
/// block: queries and dO as rows and as columns, dQ, and two tiles.
template <class T, class E> struct BackwardMemory {
  E *keys, *key_columns, *values, *queries, *query_columns, *dout, *dout_columns;
  T *dkeys, *dvalues, *dquery_columns, *lse, *delta, *scores, *dscores;
  /// Copies of the tiles when E differs from T: probabilities, and gradients of scores.
  E *p, *ds;
  /// Tiles of derivatives of changed scores, and of dropout's factors; null unless needed.
  T *slopes = nullptr, *kept = nullptr;

  BackwardMemory(const AttentionSizes& s, const ScoreRule<T>* rule, Carver& memory) {
    const int64_t of_keys = s.packed_keys() * s.width, of_block = s.block_rows() * s.width;
    const int64_t tile = std::min(kTileKeys, s.packed_keys()) * s.block_rows();
    for (E** each : {&keys, &key_columns, &values}) *each = memory.take<E>(of_keys);
    for (E** each : {&queries, &query_columns, &dout, &dout_columns}) {
      *each = memory.take<E>(of_block);
    }
    for (T** each : {&dkeys, &dvalues}) *each = memory.take<T>(of_keys);
    dquery_columns = memory.take<T>(of_block);
    for (T** each : {&lse, &delta}) *each = memory.take<T>(s.block_rows());
    for (T** each : {&scores, &dscores}) *each = memory.take<T>(tile);
    if constexpr (std::is_same_v<T, E>) {
      p = scores, ds = dscores;
    } else {
      for (E** each : {&p, &ds}) *each = memory.take<E>(tile);
    }
    if (rule && rule->has_slopes()) slopes = memory.take<T>(tile);
    if (rule && rule->kept) kept = memory.take<T>(tile);
  }
};

/// Packs the queries of a block (or an array of their shape) as rows [rows, width].
template <class T>
static void pack_query_rows(const QueryBlock& block, const MemoryBlock& x, T* to, double factor) {
  const int64_t width = block.sizes.width;
  for_group(block, x, [&](const Matrix& from, int64_t row) {
    copy_matrix(from, block.count, width, {to + row * width, dtype_of<T>, width, 1}, factor);
  });
}

/// Packs everything that a block's tiles read, except the keys.
template <class T, class E>
static void pack_block(const QueryBlock& block, const AttentionGradients& x,
                       const BackwardMemory<T, E>& m) {
  const int64_t rows = block.rows;
  const double scale = packed_scale<T, E>(block.sizes);
  pack_query_rows(block, x.q, m.queries, scale);
  pack_query_columns(block, x.q, m.query_columns, scale);
  pack_query_rows(block, x.dout, m.dout, 1);
  pack_query_columns(block, x.dout, m.dout_columns);
  T* out = m.dquery_columns;  // not used yet
  pack_query_columns(block, x.out, out);
  std::fill_n(m.delta, rows, T(0));
  for (int64_t d = 0; d < block.sizes.width; ++d) {
    for (int64_t r = 0; r < rows; ++r) {
      m.delta[r] += static_cast<T>(m.dout_columns[d * rows + r]) * out[d * rows + r];
    }
  }
  for (int64_t row = 0; row < rows; ++row) {
    const T lse = lse_of<T>(x.lse, block.batch, block.head(row), block.query(row));
    m.lse[row] = std::isfinite(lse) ? lse : T(0);  // all scores of the row are -inf
  }
}

/// `p` may be the scores, `ds` dscores.
template <class T, class E>
static void differentiate_scores(const T* scores, T scale, const T* dscores, E* p, E* ds,
                                 const T* lse, const T* delta, int64_t begin, int64_t end) {
  WEFT_INDEPENDENT
  for (int64_t r = begin; r < end; ++r) {
    const T probability = exp(scores[r] * scale - lse[r]), dscore = dscores[r];
    p[r] = E(probability);
    ds[r] = E(probability * (dscore - delta[r]));
  }
}

/// Computes p, the probabilities of scores, and ds, their gradients from dscores; both are zero
/// where a row does not see the key.
template <class T, class E>
static void differentiate_tile(const QueryBlock& block, int64_t first, int64_t count,
                               const BackwardMemory<T, E>& m) {
  const T scale = missing_scale<T, E>(block.sizes);
  for (int64_t key = 0; key < count; ++key) {
    const int64_t at = key * block.rows;
    for_seeing_rows(block, first + key, m.p + at, [](int64_t, int64_t) {});
    for_seeing_rows(block, first + key, m.ds + at, [&](int64_t begin, int64_t end) {
      differentiate_scores(m.scores + at, scale, m.dscores + at, m.p + at, m.ds + at, m.lse,
                           m.delta, begin, end);
    });
  }
}

template <class T> static void multiply_by(T* values, const T* factors, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] *= factors[i];
}

/// The same with the changes that `rule` makes. Gradients of scores are added to `dmask`.
template <class T>
static void differentiate_changed_tile(const QueryBlock& block, const ScoreRule<T>& rule,
                                       const MemoryBlock& dmask, int64_t first, int64_t count,
                                       const BackwardMemory<T, T>& m) {
  const ScoreRange at = range_of(block, first, count);
  const int64_t all = count * block.rows;
  if (m.slopes) std::fill_n(m.slopes, all, T(1));
  modify_tile<T>(rule, at, all, 1, m.scores, m.slopes);
  if (m.kept) {
    std::fill_n(m.kept, all, T(1));
    drop_tile(rule.kept, at, block, count, m.kept);
    multiply_by(m.dscores, m.kept, all);
  }
  differentiate_tile(block, first, count, m);
  if (m.kept) multiply_by(m.p, m.kept, all);
  if (dmask.data) add_to_mask(dmask, at, block, m.ds);
  if (m.slopes) multiply_by(m.ds, m.slopes, all);
}

template <class T, class E>
static void attend_block_backward(const QueryBlock& block, const ScoreRule<T>* rule,
                                  const AttentionGradients& x, const BackwardMemory<T, E>& m) {
  const AttentionSizes& sizes = block.sizes;
  const int64_t rows = block.rows, width = sizes.width;
  pack_block(block, x, m);
  bool is_first = true;
  for_seen_tiles(rule, block, [&](int64_t first, int64_t count) {
    const int64_t at = first * width;
    multiply_tiles(count, rows, width, m.keys + at, width, m.query_columns, m.scores, 0);
    multiply_tiles(count, rows, width, m.values + at, width, m.dout_columns, m.dscores, 0);
    if constexpr (std::is_same_v<T, E>) {
      if (rule) differentiate_changed_tile(block, *rule, x.dmask, first, count, m);
    }
    if (!rule) differentiate_tile(block, first, count, m);
    multiply_tiles(count, width, rows, m.p, rows, m.dout, m.dvalues + at, 1);
    multiply_tiles(count, width, rows, m.ds, rows, m.queries, m.dkeys + at, 1);
    const auto keys = key_columns(sizes, m.key_columns, first);
    multiply_tiles(width, rows, count, keys.data, keys.row, m.ds, m.dquery_columns,
                   is_first ? 0.0f : 1.0f);
    is_first = false;
  });
  if (is_first) std::fill_n(m.dquery_columns, rows * width, T(0));
  for_group(block, x.dq, [&](const Matrix& to, int64_t row) {
    copy_matrix({m.dquery_columns + row, dtype_of<T>, 1, rows}, block.count, width, to,
                sizes.scale);
  });
}

/// Keys that no query sees get gradient zero.
template <class T>
static void store_key_gradient(const AttentionSizes& sizes, T* from, double factor,
                               const Matrix& to) {
  const int64_t packed = std::min(sizes.packed_keys(), sizes.keys);
  copy_matrix({from, dtype_of<T>, sizes.width, 1}, packed, sizes.width, to, factor);
  T zero = 0;
  copy_matrix({&zero, dtype_of<T>, 0, 0}, sizes.keys - packed, sizes.width, to.rows_from(packed));
}

/// Calls task(batch element, key head, thread). One task sums all gradients of a key head, block
/// after block, so that bits do not depend on the number of threads; tasks that add to the same
/// elements of dmask run in order on one thread.
template <class Task>
static void run_key_heads(const AttentionSizes& sizes, const MemoryBlock& dmask, int threads,
                          const Task& task) {
  const bool by_batch = !dmask.data || dmask.shape[0] == sizes.batch;
  const bool by_head = !dmask.data || dmask.shape[1] == sizes.heads;
  const int64_t batches = by_batch ? sizes.batch : 1, heads = by_head ? sizes.kv_heads : 1;
  run_tasks(batches * heads, threads, [&](int64_t i, int thread) {
    for (int64_t batch = i / heads; batch < sizes.batch; batch += batches) {
      for (int64_t head = i % heads; head < sizes.kv_heads; head += heads) {
        task(batch, head, thread);
      }
    }
  });
}

template <class T, class E = T>
static void attend_backward_as(const AttentionSizes& sizes, const AttentionGradients& x) {
  const ScoreRule<T> all_changes(x.options, sizes);
  const ScoreRule<T>* rule = x.options.has_rule() ? &all_changes : nullptr;
  const int threads = usable_threads();
  Carver measure;
  BackwardMemory<T, E>(sizes, rule, measure);
  ScratchMemory scratch;
  auto* all = scratch.take<std::byte>(static_cast<int64_t>(measure.taken()) * threads);
  run_key_heads(sizes, x.dmask, threads, [&](int64_t batch, int64_t kv_head, int thread) {
    Carver memory(all + static_cast<size_t>(thread) * measure.taken());
    const BackwardMemory<T, E> m(sizes, rule, memory);
    pack_key_rows(sizes, head_matrix(x.k, batch, kv_head), m.keys);
    pack_key_rows(sizes, head_matrix(x.v, batch, kv_head), m.values);
    pack_key_columns(sizes, head_matrix(x.k, batch, kv_head), m.key_columns);
    std::fill_n(m.dkeys, sizes.packed_keys() * sizes.width, T(0));
    std::fill_n(m.dvalues, sizes.packed_keys() * sizes.width, T(0));
    for (int64_t i = 0; i < sizes.blocks(); ++i) {
      attend_block_backward({sizes, batch, kv_head, i}, rule, x, m);
    }
    const auto factor = static_cast<double>(missing_scale<T, E>(sizes));
    store_key_gradient(sizes, m.dkeys, factor, head_matrix(x.dk, batch, kv_head));
    store_key_gradient(sizes, m.dvalues, 1, head_matrix(x.dv, batch, kv_head));
  });
}

void host::attend_backward(const AttentionSizes& sizes, const AttentionGradients& x) {
  if (x.q.dtype == DType::f64) return attend_backward_as<double>(sizes, x);
  if (multiplies_in_bf16(x.q.dtype) && !x.options.has_rule()) {
    return attend_backward_as<float, bfloat16>(sizes, x);
  }
  attend_backward_as<float>(sizes, x);
}

}  // namespace weft
