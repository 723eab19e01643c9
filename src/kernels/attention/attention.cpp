// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/base/independent.h"
#include "src/base/numeric.h"
#include "src/kernels/attention/score_tiles.h"
#include "src/kernels/attention/tiles.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/math/math.h"
#include "src/kernels/matmul/tasks.h"
#include "weft/error.h"

namespace weft {

static std::optional<DType> products_asked_for;

void multiply_attention_in(std::optional<DType> dtype) { products_asked_for = dtype; }

bool multiplies_in_bf16(DType dtype) {
  if (dtype != DType::bf16) return false;
  if (products_asked_for) return *products_asked_for == DType::bf16;
#ifdef WEFT_WITH_ONEDNN
  return has_bf16_instructions();
#else
  return false;
#endif
}

static void check_operand(const char* name, const MemoryBlock& x, const Shape& shape, DType dtype) {
  if (x.shape != shape) fail("attention: ", name, " is ", x.shape, ", expected ", shape);
  if (x.dtype != dtype) fail("attention: ", name, " is ", x.dtype, ", expected ", dtype);
  const int last = shape.ndim() - 1;
  if (last == 3 && shape[last] > 1 && x.strides[last] != 1) {
    fail("attention: stride of the last dim of ", name, " is ", x.strides[last], ", expected 1");
  }
}

static AttentionSizes checked_sizes(const AttentionOperands& x) {
  const auto& [q, k, v, out, lse, options] = x;
  if (q.shape.ndim() != 4 || k.shape.ndim() != 4) {
    fail("attention: q and k are ", q.shape, " and ", k.shape,
         ", expected [batch, heads, sequence, head_dim]");
  }
  if (!is_floating(q.dtype)) fail("attention: dtype is ", q.dtype, ", expected a floating one");
  if (q.device.kind != DeviceKind::cpu && !cuda::on_cuda(q)) {
    fail("attention: device is ", q.device, ", expected cpu or cuda");
  }
  if (q.shape[3] == 0) fail("attention: q is ", q.shape, ", expected heads with elements");
  const int64_t heads = q.shape[1], kv_heads = k.shape[1];
  if (kv_heads == 0 ? heads != 0 : heads % kv_heads != 0) {
    fail("attention: number of query heads is ", heads, ", expected a multiple of ", kv_heads,
         ", the key heads");
  }
  check_operand("q", q, q.shape, q.dtype);
  check_operand("k", k, {q.shape[0], kv_heads, k.shape[2], q.shape[3]}, q.dtype);
  check_operand("v", v, k.shape, q.dtype);
  check_operand("out", out, q.shape, q.dtype);
  const int64_t group = kv_heads == 0 ? 0 : heads / kv_heads;
  const auto width = static_cast<double>(q.shape[3]);
  AttentionSizes sizes{
      .batch = q.shape[0],
      .heads = heads,
      .kv_heads = kv_heads,
      .group = group,
      .queries = q.shape[2],
      .keys = k.shape[2],
      .width = q.shape[3],
      .scale = options.scale ? *options.scale : 1 / std::sqrt(width),
      .causal = options.causal,
      .offset = options.query_offset.value_or(k.shape[2] - q.shape[2]),
      .window = options.window,
      .first_batch = options.origin.batch,
      .first_head = options.origin.head,
      .all_heads = options.origin.all_heads ? options.origin.all_heads : heads,
      .all_queries = options.origin.all_queries ? options.origin.all_queries : q.shape[2],
      .block_queries = 0};
  sizes.block_queries = std::clamp<int64_t>(128 / std::max<int64_t>(group, 1), 16, 64);
  sizes.block_queries = std::clamp<int64_t>(sizes.queries, 1, sizes.block_queries);
  return sizes;
}

void attention(const AttentionOperands& x) {
  const AttentionSizes sizes = checked_sizes(x);
  if (x.lse.data) {
    check_operand("lse", x.lse, {sizes.batch, sizes.heads, sizes.queries},
                  compute_dtype(x.q.dtype));
  }
  if (x.out.numel() > 0) attend(sizes, x);
}

void attention_backward(const AttentionGradients& x) {
  const AttentionSizes sizes = checked_sizes(x);
  const DType dtype = x.q.dtype, computed = compute_dtype(dtype);
  check_operand("lse", x.lse, {sizes.batch, sizes.heads, sizes.queries}, computed);
  check_operand("dout", x.dout, x.q.shape, dtype);
  check_operand("dq", x.dq, x.q.shape, dtype);
  check_operand("dk", x.dk, x.k.shape, dtype);
  check_operand("dv", x.dv, x.v.shape, dtype);
  if (x.dmask.data) {
    check_operand("dmask", x.dmask, x.options.mask.shape, computed);
    fill(x.dmask, 0);
  }
  if (x.k.numel() > 0 || x.q.numel() > 0) attend_backward(sizes, x);
}

// All tiles are transposed: scores [keys, rows], results [width, rows]. Keys are then used without
// repacking, maxima and sums of a row's scores run down columns (no sums across SIMD lanes), and
// each product has dense operands, which oneDNN multiplies at 90 % of the peak, against 75 % with
// one operand transposed.

/// One thread's memory. Scores become probabilities in place, or separately in E.
template <class T, class E> struct ForwardMemory {
  E *keys, *values, *queries, *probabilities;
  T *scores, *result, *max, *total, *factor;

  ForwardMemory(const AttentionSizes& s, Carver& memory) {
    const int64_t rows = s.block_rows(), of_keys = s.packed_keys() * s.width;
    const int64_t tile = std::min(kTileKeys, s.packed_keys()) * rows;
    keys = memory.take<E>(of_keys);
    values = memory.take<E>(of_keys);
    queries = memory.take<E>(rows * s.width);
    result = memory.take<T>(rows * s.width);
    for (T** each : {&max, &total, &factor}) *each = memory.take<T>(rows);
    scores = memory.take<T>(tile);
    if constexpr (std::is_same_v<T, E>) {
      probabilities = scores;
    } else {
      probabilities = memory.take<E>(tile);
    }
  }
};

template <class T>
static void raise_maxima(const T* scores, T scale, T* max, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const T score = scores[r] * scale;
    max[r] = score > max[r] ? score : max[r];
  }
}

/// The same for four keys, so that the maxima are loaded once.
template <class T>
static void raise_maxima_by_four(const T* __restrict scores, T scale, T* __restrict max,
                                 int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    const T a = scores[r] * scale, b = scores[rows + r] * scale;
    const T c = scores[2 * rows + r] * scale, d = scores[3 * rows + r] * scale;
    const T ab = a > b ? a : b, cd = c > d ? c : d;
    const T most = ab > cd ? ab : cd;
    max[r] = most > max[r] ? most : max[r];
  }
}

/// `probabilities` may be the scores.
template <class T, class E>
static void exponentiate(const T* scores, T scale, E* probabilities, const T* max, T* total,
                         int64_t begin, int64_t end) {
  WEFT_INDEPENDENT
  for (int64_t r = begin; r < end; ++r) {
    const T p = exp(scores[r] * scale - max[r]);
    total[r] += p;
    probabilities[r] = E(p);
  }
}

/// Replaces the scores of `count` keys from `first` on by exp(score - max) and updates maxima and
/// totals of the tiles so far; `factor` is the scale for earlier totals and results.
template <class T, class E>
static void soften_tile(const QueryBlock& block, int64_t first, int64_t count, bool is_first,
                        T scale, const ForwardMemory<T, E>& m) {
  const int64_t rows = block.rows;
  std::copy_n(m.max, rows, m.factor);
  int64_t key = 0;
  for (; key + 4 <= count && block.all_see(first + key, 4); key += 4) {
    raise_maxima_by_four(m.scores + key * rows, scale, m.max, rows);
  }
  for (; key < count; ++key) {
    T* scores = m.scores + key * rows;
    for_seeing_rows(block, first + key, scores, [&](int64_t begin, int64_t end) {
      raise_maxima(scores, scale, m.max, begin, end);
    });
  }
  for (int64_t r = 0; r < rows && !is_first; ++r) {
    m.factor[r] = m.factor[r] == m.max[r] ? T(1) : exp(m.factor[r] - m.max[r]);
    m.total[r] *= m.factor[r];
  }
  for (key = 0; key < count; ++key) {
    T* scores = m.scores + key * rows;
    E* probabilities = m.probabilities + key * rows;
    for_seeing_rows(block, first + key, probabilities, [&](int64_t begin, int64_t end) {
      exponentiate(scores, scale, probabilities, m.max, m.total, begin, end);
    });
  }
}

template <class T>
static void multiply_columns(T* matrix, int64_t width, int64_t rows, const T* factor) {
  for (int64_t d = 0; d < width; ++d) {
    for (int64_t r = 0; r < rows; ++r) matrix[d * rows + r] *= factor[r];
  }
}

/// Computes the logsumexp of each row of `block` from its maximum and total.
template <class T, class E>
static void store_lse(const QueryBlock& block, const ForwardMemory<T, E>& m,
                      const MemoryBlock& lse) {
  for (int64_t row = 0; row < block.rows; ++row) {
    // -inf when no key is seen
    lse_of<T>(lse, block.batch, block.head(row), block.query(row)) = m.max[row] + log(m.total[row]);
  }
}

/// Adds the sinks' terms to the totals.
template <class T, class E>
static void add_sinks(const ScoreRule<T>& rule, const QueryBlock& block,
                      const ForwardMemory<T, E>& m) {
  for (int64_t row = 0; row < block.rows; ++row) {
    m.factor[row] =
        rule.add_sink(block.sizes.first_head + block.head(row), m.max[row], m.total[row]);
  }
  multiply_columns(m.result, block.sizes.width, block.rows, m.factor);
}

template <class T, class E>
static void attend_block(const QueryBlock& block, const ScoreRule<T>* rule,
                         const AttentionOperands& x, const ForwardMemory<T, E>& m) {
  const AttentionSizes& sizes = block.sizes;
  const int64_t rows = block.rows, width = sizes.width;
  pack_query_columns(block, x.q, m.queries, packed_scale<T, E>(sizes));
  // Finite, so that a tile with only scores of -inf becomes a tile of zeros.
  std::fill_n(m.max, rows, std::numeric_limits<T>::lowest());
  std::fill_n(m.total, rows, T(0));
  const T scale = missing_scale<T, E>(sizes);
  bool is_first = true;
  for_seen_tiles(rule, block, [&](int64_t first, int64_t count) {
    multiply_tiles(count, rows, width, m.keys + first * width, width, m.queries, m.scores, 0);
    const ScoreRange at = range_of(block, first, count);
    if (rule) modify_tile<T>(*rule, at, count * rows, scale, m.scores, nullptr);
    soften_tile(block, first, count, is_first, rule ? T(1) : scale, m);
    if (rule && rule->kept) drop_tile(rule->kept, at, block, count, m.probabilities);
    if (!is_first) multiply_columns(m.result, width, rows, m.factor);
    const auto values = key_columns(sizes, m.values, first);
    multiply_tiles(width, rows, count, values.data, values.row, m.probabilities, m.result,
                   is_first ? 0.0f : 1.0f);
    is_first = false;
  });
  if (is_first) std::fill_n(m.result, rows * width, T(0));
  if (rule && rule->sinks) add_sinks(*rule, block, m);
  if (x.lse.data) store_lse(block, m, x.lse);
  for (int64_t r = 0; r < rows; ++r) m.factor[r] = m.total[r] > 0 ? 1 / m.total[r] : m.total[r];
  multiply_columns(m.result, width, rows, m.factor);
  for_group(block, x.out, [&](const Matrix& to, int64_t row) {
    copy_matrix({m.result + row, dtype_of<T>, 1, rows}, block.count, width, to);
  });
}

template <class T, class E = T>
static void attend_as(const AttentionSizes& sizes, const AttentionOperands& x) {
  const ScoreRule<T> rule(x.options, sizes);
  const int threads = usable_threads();
  const int64_t heads = sizes.batch * sizes.kv_heads;
  // When there are few heads, each one's blocks are distributed over several tasks with their own
  // copies of the keys.
  const int64_t deals =
      threads == 1 ? 1 : std::clamp<int64_t>(4 * threads / heads, 1, sizes.blocks());
  Carver measure;
  ForwardMemory<T, E>(sizes, measure);
  ScratchMemory scratch;
  auto* all = scratch.take<std::byte>(static_cast<int64_t>(measure.taken()) * threads);
  run_tasks(heads * deals, threads, [&](int64_t task, int thread) {
    const int64_t head = task / deals, batch = head / sizes.kv_heads;
    const int64_t kv_head = head % sizes.kv_heads;
    Carver memory(all + static_cast<size_t>(thread) * measure.taken());
    const ForwardMemory<T, E> m(sizes, memory);
    pack_key_rows(sizes, head_matrix(x.k, batch, kv_head), m.keys);
    pack_key_columns(sizes, head_matrix(x.v, batch, kv_head), m.values);
    for (int64_t i = task % deals; i < sizes.blocks(); i += deals) {
      attend_block({sizes, batch, kv_head, i}, x.options.has_rule() ? &rule : nullptr, x, m);
    }
  });
}

void host::attend(const AttentionSizes& sizes, const AttentionOperands& x) {
  if (!x.options.mod && x.options.dropout == 0 && has_few_queries(sizes, x)) {
    return attend_few(sizes, x);
  }
  if (x.q.dtype == DType::f64) return attend_as<double>(sizes, x);
  if (multiplies_in_bf16(x.q.dtype)) return attend_as<float, bfloat16>(sizes, x);
  attend_as<float>(sizes, x);
}

}  // namespace weft
