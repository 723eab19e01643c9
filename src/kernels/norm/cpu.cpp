// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "src/kernels/copy/copy.h"
#include "src/kernels/norm/norm_rows.h"

namespace weft::host {

/// Rows are processed in at most kNormBlocks blocks, each with its own sums for dweight and dbias.
static constexpr int64_t kNormBlocks = 64, kNormBlockRows = 16;

/// The rows of `walk`: computes dx and adds to the sums `dweight` and `dbias`, if not null.
template <class C>
static void backward_rows(const NormBackwardRows& rows, const HostWalk<C>& walk,
                          const std::vector<C>& weight, C* dweight, C* dbias) {
  auto read_x = walk.reader(rows.x), read_dy = walk.reader(rows.dy);
  auto out = walk.writer(rows.dx);
  for (int64_t r = walk.begin(); r < walk.end(); r += walk.step()) {
    const C *x = read_x(r), *dy = read_dy(r);
    const NormGradient<C> f = rows.gradient(walk, x, dy, weight, r);
    // Runs before dx is written, because dx may share memory with dy.
    if (dweight)
      map_row<C>(walk.size(), WeightGradient<C>{f.mean, f.rstd}, dweight, dweight, dy, x);
    if (dbias) map_row<C>(walk.size(), Sum<C>{}, dbias, dbias, dy);
    if (rows.dx.data()) walk.map(f, out, r, dy, weight, x);
  }
}

/// Adds up the sums of the blocks, n elements each, in order and stores the total.
template <class C>
static void store_sums(const MemoryBlock* out, std::vector<C>& sums, int64_t n, bool accumulates) {
  if (!out) return;
  const auto stride = static_cast<size_t>(n);
  for (size_t at = stride; at < sums.size(); at += stride) {
    map_row<C>(n, Sum<C>{}, sums.data(), sums.data(), sums.data() + at);
  }
  const MemoryBlock total = dense_block(sums.data(), dtype_of<C>, {n});
  accumulates ? accumulate(*out, total) : host::copy(*out, total);
}

void norm_backward(const NormBackwardRows& rows, const MemoryBlock& x, const MemoryBlock* dweight,
                   const MemoryBlock* dbias, bool accumulate) {
  const int64_t n = rows.x.size(), count = rows.x.count();
  const int64_t block = std::max(kNormBlockRows, (count + kNormBlocks - 1) / kNormBlocks);
  const int64_t blocks = std::max<int64_t>(1, (count + block - 1) / block);
  visit_compute_floating("norm_backward", x.dtype, [&]<class C>(Type<C>) {
    const std::vector<C> weight = HostWalk<C>(0, count, n).vector(rows.weight, C(1));
    std::vector<C> for_weight(static_cast<size_t>(dweight ? blocks * n : 0));
    std::vector<C> for_bias(static_cast<size_t>(dbias ? blocks * n : 0));
    parallel_for(blocks, grain_of(block * n), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const HostWalk<C> walk(i * block, std::min(count, (i + 1) * block), n);
        backward_rows(rows, walk, weight, dweight ? for_weight.data() + i * n : nullptr,
                      dbias ? for_bias.data() + i * n : nullptr);
      }
    });
    store_sums(dweight, for_weight, n, accumulate);
    store_sums(dbias, for_bias, n, accumulate);
  });
}

}  // namespace weft::host
