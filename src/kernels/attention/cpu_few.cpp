// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "src/base/independent.h"
#include "src/kernels/attention/rule.h"
#include "src/kernels/attention/tiles.h"
#include "src/kernels/math/math.h"
#include "src/kernels/math/reducers.h"
#include "src/kernels/matmul/tasks.h"
#include "src/kernels/rows/row_functors.h"

namespace weft {

// Attention of a few queries, as in decoding: its time is that of reading keys and values once, so
// they are not packed. Keys are split into parts, whose results are combined in order. All heads of
// a part come before the next part, because they share memory pages.

static constexpr int64_t kFewRows = 8;
static constexpr int64_t kPartKeys = 256;
static constexpr int64_t kValuesAtOnce = 4;

bool has_few_queries(const AttentionSizes& sizes, const AttentionOperands& x) {
  return sizes.window == 0 && x.q.dtype != DType::f64 && sizes.group * sizes.queries <= kFewRows &&
         x.k.strides[3] == 1 && x.k.strides[2] >= sizes.width;
}

/// Results of some keys for each row: sums of exp(score - max), times values and alone.
struct PartialRows {
  float *result, *max, *total;

  PartialRows(float* memory, int64_t rows, int64_t width)
      : result(memory), max(memory + rows * width), total(max + rows) {}
  static int64_t floats(int64_t rows, int64_t width) { return rows * (width + 2); }
};

struct FewAttention {
  const AttentionSizes& sizes;
  /// Null for a plain call.
  const ScoreRule<float>* rule;
  const AttentionOperands& of;
  int64_t rows, heads, parts;
  float* memory;

  /// Row g * queries + i of a head is query i of the group's head g.
  PartialRows partial(int64_t head, int64_t part) const {
    const int64_t at = (part * heads + head) * PartialRows::floats(rows, sizes.width);
    return {memory + at, rows, sizes.width};
  }
};

/// Computes scaled scores of `count` keys from `first` on, with kPartKeys per row.
static void score_few(const FewAttention& x, int64_t batch, int64_t kv_head, int64_t first,
                      int64_t count, float* scores) {
  const AttentionSizes& s = x.sizes;
  ScratchMemory scratch;
  float* queries = scratch.take<float>(x.rows * s.width);
  for (int64_t g = 0; g < s.group; ++g) {
    copy_matrix(head_matrix(x.of.q, batch, kv_head * s.group + g), s.queries, s.width,
                {queries + g * s.queries * s.width, DType::f32, s.width, 1}, s.scale);
  }
  multiply_narrow({.m = x.rows,
                   .n = count,
                   .k = s.width,
                   .a = {queries, DType::f32, s.width, 1},
                   .b = head_matrix(x.of.k, batch, kv_head, first).transposed(),
                   .c = {scores, DType::f32, kPartKeys, 1}});
}

/// sum += p[0] * v[0] + ... + p[3] * v[3], of rows.
static void add_four(const float* p, const float* const* v, int64_t width, float* sum) {
  const float *a = v[0], *b = v[1], *c = v[2], *d = v[3];
  WEFT_INDEPENDENT
  for (int64_t i = 0; i < width; ++i) {
    sum[i] += (p[0] * a[i] + p[1] * b[i]) + (p[2] * c[i] + p[3] * d[i]);
  }
}

/// result[row] = the sum of p[row][j] * v[j]; p is zero from `count` to the next multiple of four.
template <class X>
static void sum_values(const float* p, const Matrix& v, int64_t count, int64_t rows, int64_t width,
                       float* result) {
  const X* values = static_cast<const X*>(v.data);
  ScratchMemory scratch;
  float* widened = scratch.take<float>(kValuesAtOnce * width);
  std::fill_n(result, rows * width, 0.0f);
  for (int64_t j = 0; j < count; j += kValuesAtOnce) {
    const float* at[kValuesAtOnce];
    for (int64_t i = 0; i < kValuesAtOnce; ++i) {
      const X* from = values + std::min(j + i, count - 1) * v.row;
      fetch_ahead(from + kFetchedAhead * v.row, width);
      if constexpr (std::is_same_v<X, float>) {
        at[i] = from;
      } else {
        map_row<float>(
            width, [](X x) { return static_cast<float>(x); }, widened + i * width, from);
        at[i] = widened + i * width;
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      add_four(p + r * kPartKeys + j, at, width, result + r * width);
    }
  }
}

/// Applies the changes to scores of `count` keys from `first` on.
static void change_few(const FewAttention& x, int64_t batch, int64_t kv_head, int64_t first,
                       int64_t count, float* scores) {
  const AttentionSizes& s = x.sizes;
  float slope;
  for (int64_t r = 0; r < x.rows; ++r) {
    const int64_t head = s.first_head + kv_head * s.group + r / s.queries;
    for (int64_t j = 0; j < count; ++j) {
      float& score = scores[r * kPartKeys + j];
      score = x.rule->changed(score, slope, s.first_batch + batch, head, s.offset + r % s.queries,
                              first + j);
    }
  }
}

static void attend_part(const FewAttention& x, int64_t head, int64_t part) {
  const AttentionSizes& s = x.sizes;
  const int64_t batch = head / s.kv_heads, kv_head = head % s.kv_heads, first = part * kPartKeys;
  const int64_t count = std::min(kPartKeys, s.seen(s.queries - 1) - first);
  const PartialRows sums = x.partial(head, part);
  ScratchMemory scratch;
  float* scores = scratch.take<float>(x.rows * kPartKeys);
  score_few(x, batch, kv_head, first, count, scores);
  if (x.rule) change_few(x, batch, kv_head, first, count, scores);
  for (int64_t r = 0; r < x.rows; ++r) {
    float* row = scores + r * kPartKeys;
    const int64_t seen = std::clamp<int64_t>(s.seen(r % s.queries) - first, 0, count);
    // Finite, so that a part without visible keys contributes nothing.
    sums.max[r] = std::max(std::numeric_limits<float>::lowest(),
                           reduce_row<GreatestOf, float>(seen, AsItIs{}, row));
    map_row<float>(seen, ExpAbove<float>{sums.max[r]}, row, row);
    sums.total[r] = reduce_row<SumOf, float>(seen, AsItIs{}, row);
    std::fill(row + seen, row + kPartKeys, 0.0f);
  }
  const Matrix values = head_matrix(x.of.v, batch, kv_head, first);
  visit_floating("attention", values.dtype, [&]<class X>(Type<X>) {
    if constexpr (!std::is_same_v<X, double>) {
      sum_values<X>(scores, values, count, x.rows, s.width, sums.result);
    }
  });
}

/// Adds the results of other keys to `sums`.
static void put_together(const PartialRows& sums, const PartialRows& other, int64_t rows,
                         int64_t width) {
  for (int64_t r = 0; r < rows; ++r) {
    const float max = std::max(sums.max[r], other.max[r]);
    const float own = exp(sums.max[r] - max), others = exp(other.max[r] - max);
    sums.max[r] = max;
    sums.total[r] = own * sums.total[r] + others * other.total[r];
    map_row<float>(
        width, [&](float a, float b) { return own * a + others * b; }, sums.result + r * width,
        sums.result + r * width, other.result + r * width);
  }
}

static void store_few(const FewAttention& x, int64_t at_head) {
  const AttentionSizes& s = x.sizes;
  const int64_t batch = at_head / s.kv_heads, kv_head = at_head % s.kv_heads;
  const PartialRows sums = x.partial(at_head, 0);
  for (int64_t r = 0; r < x.rows; ++r) {
    const int64_t head = kv_head * s.group + r / s.queries, query = r % s.queries;
    float total = sums.total[r], max = sums.max[r], factor = 1;
    if (x.rule && x.rule->sinks) {
      factor = x.rule->add_sink(s.first_head + head, max, total);
    }
    copy_matrix({sums.result + r * s.width, DType::f32, s.width, 1}, 1, s.width,
                head_matrix(x.of.out, batch, head, query), total > 0 ? factor / total : total);
    // -inf when no key is seen
    if (x.of.lse.data) lse_of<float>(x.of.lse, batch, head, query) = max + log(total);
  }
}

void attend_few(const AttentionSizes& sizes, const AttentionOperands& operands) {
  const ScoreRule<float> rule(operands.options, sizes);
  const int64_t heads = sizes.batch * sizes.kv_heads, rows = sizes.group * sizes.queries;
  const int64_t seen = sizes.seen(sizes.queries - 1);
  const int64_t parts = std::max<int64_t>(1, (seen + kPartKeys - 1) / kPartKeys);
  ScratchMemory scratch;
  const FewAttention x{sizes,
                       operands.options.has_rule() ? &rule : nullptr,
                       operands,
                       rows,
                       heads,
                       parts,
                       scratch.take<float>(heads * parts * PartialRows::floats(rows, sizes.width))};
  constexpr int64_t kWorthThreads = int64_t{1} << 16;
  const int threads = heads * seen * sizes.width < kWorthThreads ? 1 : usable_threads();
  run_tasks(heads * parts, threads,
            [&](int64_t task, int) { attend_part(x, task % heads, task / heads); });
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t part = 1; part < parts; ++part) {
      put_together(x.partial(head, 0), x.partial(head, part), rows, sizes.width);
    }
    store_few(x, head);
  }
}

}  // namespace weft
