// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "src/device/cuda/streams.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/norm/cpu_rows.h"
#include "src/kernels/norm/cuda.h"

namespace weft {

/// Rows are processed in at most kNormBlocks blocks, each with its own sums for dweight and dbias.
static constexpr int64_t kNormBlocks = 64, kNormBlockRows = 16;

/// The operands and results of a norm's backward, as rows.
struct NormGradients {
  const NormRows& norm;
  Rows x, dy;
  std::optional<Rows> dx, sum, dot;
  bool wants_weight, wants_bias;
};

/// Returns means over the row that its gradient needs: of dy * weight, and of dy * weight * xhat.
template <class C>
static NormGradient<C> gradient_of(const NormGradients& g, const NormStatistics<C>& statistics,
                                   const C* dy, const C* weight, const C* x, int64_t r) {
  const NormRow<C> row = statistics.of(x, r);
  const int64_t n = g.x.size();
  NormGradient<C> result{row.mean, row.rstd, C(0), C(0)};
  if (!g.dx) return result;
  if (g.norm.centered) {
    const C sum =
        g.sum ? RowValues<C>(*g.sum)[r] : reduce_row<SumOf, C>(n, ProductOfTwo<C>{}, dy, weight);
    result.sum = sum / statistics.size();
  }
  if (!g.dot) {
    result.dot = reduce_row<SumOf, C>(n, NormDot<C>{row.mean, row.rstd}, dy, weight, x);
  } else {
    // rms_norm_dot omits rstd, so that it does not need the sum of squares first.
    result.dot = RowValues<C>(*g.dot)[r] * (g.norm.centered ? C(1) : row.rstd);
  }
  result.dot /= statistics.size();
  return result;
}

/// Rows [begin, end): computes dx and adds to the sums `dweight` and `dbias`.
template <class C>
static void backward_rows(const NormGradients& g, const NormStatistics<C>& statistics,
                          const C* weight, int64_t begin, int64_t end, C* dweight, C* dbias) {
  const int64_t n = g.x.size();
  RowReader<C> read_x(g.x, end), read_dy(g.dy, end);
  std::optional<RowWriter<C>> write;
  if (g.dx) write.emplace(*g.dx, end);
  for (int64_t r = begin; r < end; ++r) {
    const C *x = read_x(r), *dy = read_dy(r);
    const NormGradient<C> f = gradient_of(g, statistics, dy, weight, x, r);
    // Runs before dx is written, because dx may share memory with dy.
    if (g.wants_weight) {
      map_row(n, WeightGradient<C>{f.mean, f.rstd}, dweight, dweight, dy, x);
    }
    if (g.wants_bias) map_row(n, Sum<C>{}, dbias, dbias, dy);
    if (!g.dx) continue;
    map_row(n, f, write->begin(r), dy, weight, x);
    write->end();
  }
}

/// Adds up the sums of the blocks in order and stores the total.
template <class C>
static void store_sums(const Block* out, std::vector<C>& sums, int64_t stride, int64_t n,
                       bool accumulates) {
  if (!out) return;
  for (size_t at = static_cast<size_t>(stride); at < sums.size();
       at += static_cast<size_t>(stride)) {
    map_row(n, Sum<C>{}, sums.data(), sums.data(), sums.data() + at);
  }
  const Block total = dense_block(sums.data(), dtype_of<C>, {n});
  accumulates ? accumulate(*out, total) : copy(*out, total);
}

template <class C>
static void norm_backward_as(const NormGradients& g, const Block* dweight, const Block* dbias,
                             const Block& weight, bool accumulates) {
  const int64_t n = g.x.size(), rows = g.x.count();
  const std::vector<C> weights = norm_vector<C>("norm: weight", weight, n, C(1));
  const NormStatistics<C> statistics(g.norm, g.x);
  const int64_t block = std::max(kNormBlockRows, (rows + kNormBlocks - 1) / kNormBlocks);
  const int64_t blocks = std::max<int64_t>(1, (rows + block - 1) / block);
  std::vector<C> for_weight(static_cast<size_t>(dweight ? blocks * n : 0));
  std::vector<C> for_bias(static_cast<size_t>(dbias ? blocks * n : 0));
  parallel_for(blocks, grain_of(block * n), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      C* dw = dweight ? for_weight.data() + i * n : nullptr;
      C* db = dbias ? for_bias.data() + i * n : nullptr;
      backward_rows(g, statistics, weights.data(), i * block, std::min(rows, (i + 1) * block), dw,
                    db);
    }
  });
  store_sums(dweight, for_weight, n, n, accumulates);
  store_sums(dbias, for_bias, n, n, accumulates);
}

static void norm_backward(const char* what, const NormRows& norm, const Block* dx,
                          const Block* dweight, const Block* dbias, const Block& dy, const Block& x,
                          const Block& weight, bool accumulates) {
  NormGradients g{norm, last_rows(x), last_rows(dy),      {},
                  {},   {},           dweight != nullptr, dbias != nullptr};
  check_rows(what, g.x, g.dy);
  if (dx) {
    g.dx.emplace(last_rows(*dx));
    check_rows(what, g.x, *g.dx);
  }
  if (norm.cut && dx) {
    if (norm.centered) g.sum.emplace(Rows::values(what, norm.cut->sums[2], g.x));
    g.dot.emplace(Rows::values(what, norm.cut->sums[norm.centered ? 3 : 1], g.x));
  }
  visit_compute_floating(what, x.dtype, [&](auto type) {
    norm_backward_as<typename decltype(type)::type>(g, dweight, dbias, weight, accumulates);
  });
}

void rms_norm_backward(const Block* dx, const Block* dweight, const Block& dy, const Block& x,
                       const Block& weight, double eps, const CutRows* cut, bool accumulate) {
  if (cuda::kWithCuda && cuda::on_cuda(x)) {
    return cuda::rms_norm_backward(dx, dweight, dy, x, weight, eps, cut, accumulate);
  }
  norm_backward("rms_norm_backward", {false, eps, cut}, dx, dweight, nullptr, dy, x, weight,
                accumulate);
}

void layer_norm_backward(const Block* dx, const Block* dweight, const Block* dbias, const Block& dy,
                         const Block& x, const Block& weight, double eps, const CutRows* cut,
                         bool accumulate) {
  if (cuda::kWithCuda && cuda::on_cuda(x)) {
    return cuda::layer_norm_backward(dx, dweight, dbias, dy, x, weight, eps, cut, accumulate);
  }
  norm_backward("layer_norm_backward", {true, eps, cut}, dx, dweight, dbias, dy, x, weight,
                accumulate);
}

}  // namespace weft
