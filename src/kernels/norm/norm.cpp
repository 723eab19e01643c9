// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/norm/norm.h"

#include "src/kernels/copy/copy.h"
#include "src/kernels/norm/norm_rows.h"
#include "weft/error.h"

namespace weft {
namespace {

/// y = xhat * weight + bias, or without bias.
struct NormalizeRows {
  static constexpr bool kReadsBf16 = true;
  NormStatistics norm;
  Rows x, y, weight, bias;

  template <class Walk> WEFT_FN void operator()(const Walk& walk) const {
    using C = typename Walk::C;
    auto read = walk.held_reader(x, 0);
    auto&& out = walk.writer(y);
    auto w = walk.vector(weight, C(1)), b = walk.vector(bias, C(0));
    for (int64_t r = walk.begin(); r < walk.end(); r += walk.step()) {
      auto in = read(r);
      const NormRow<C> row = norm.of(walk, in, r);
      const Normalized<C> f{row.mean, row.rstd};
      bias.data() ? walk.map(f, out, r, in, w, b) : walk.map(f, out, r, in, w);
    }
  }
};

/// out[r] = sum of (x - mean)^2.
struct CenteredSquaresRows {
  Rows x, sums, out;
  int64_t whole;

  template <class Walk> WEFT_FN void operator()(const Walk& walk) const {
    using C = typename Walk::C;
    auto read = walk.reader(x);
    for (int64_t r = walk.begin(); r < walk.end(); r += walk.step()) {
      auto in = read(r);
      const C mean = value_of<C>(sums, r) / static_cast<C>(whole);
      walk.set(out, r, walk.template reduce<SumOf>(CenteredSquare<C>{mean}, in));
    }
  }
};

/// sum[r] = sum of dy * weight and dot[r] = sum of dy * weight * xhat, of rms_norm with x in place
/// of xhat; either may be omitted.
struct NormSumsRows {
  NormStatistics norm;
  Rows dy, x, weight, sum, dot;

  template <class Walk> WEFT_FN void operator()(const Walk& walk) const {
    using C = typename Walk::C;
    auto read_dy = walk.held_reader(dy, 0), read_x = walk.reader(x);
    auto w = walk.vector(weight, C(1));
    for (int64_t r = walk.begin(); r < walk.end(); r += walk.step()) {
      auto upper = read_dy(r);
      if (sum.data()) {
        walk.set(sum, r, walk.template reduce<SumOf>(ProductOfTwo<C>{}, upper, w));
      }
      if (!dot.data()) continue;
      auto in = read_x(r);
      const NormRow<C> row = norm.centered ? norm.of(walk, in, r) : NormRow<C>{C(0), C(1)};
      const NormDot<C> f{row.mean, row.rstd};
      walk.set(dot, r, walk.template reduce<SumOf>(f, upper, w, in));
    }
  }
};

}  // namespace

namespace host {

/// Rows are processed in at most kNormBlocks blocks, each with its own sums for dweight and dbias.
static constexpr int64_t kNormBlocks = 64, kNormBlockRows = 16;

/// The rows of `walk`: computes dx and adds to the sums `dweight` and, if not null, `dbias`.
template <class Walk, class C = typename Walk::C>
static void backward_rows(const NormBackwardRows& rows, const Walk& walk,
                          const std::vector<C>& weight, C* dweight, C* dbias) {
  auto read_x = walk.reader(rows.x), read_dy = walk.reader(rows.dy);
  auto out = walk.writer(rows.dx);
  for (int64_t r = walk.begin(); r < walk.end(); r += walk.step()) {
    auto x = read_x(r), dy = read_dy(r);
    const NormGradient<C> f = rows.gradient(walk, x, dy, weight, r);
    // Runs before dx is written, because dx may share memory with dy.
    map_row<C>(walk.size(), WeightGradient<C>{f.mean, f.rstd}, dweight, dweight, dy, x);
    if (dbias) map_row<C>(walk.size(), Sum<C>{}, dbias, dbias, dy);
    walk.map(f, out, r, dy, weight, x);
  }
}

/// Adds up the sums of the blocks, n elements each, in order and stores the total.
template <class C>
static void store_sums(const MemoryBlock& out, std::vector<C>& sums, int64_t n, bool accumulates) {
  const auto stride = static_cast<size_t>(n);
  for (size_t at = stride; at < sums.size(); at += stride) {
    map_row<C>(n, Sum<C>{}, sums.data(), sums.data(), sums.data() + at);
  }
  const MemoryBlock total = dense_block(sums.data(), dtype_of<C>, {n});
  accumulates ? accumulate(out, total) : host::copy(out, total);
}

void norm_backward(const NormBackwardRows& rows, const MemoryBlock&, const MemoryBlock& dweight,
                   const MemoryBlock* dbias, bool accumulate) {
  const int64_t n = rows.x.size(), count = rows.x.count();
  const int64_t block = std::max(kNormBlockRows, (count + kNormBlocks - 1) / kNormBlocks);
  const int64_t blocks = std::max<int64_t>(1, (count + block - 1) / block);
  const auto compute = [&]<class Walk>(Type<Walk>) {
    using C = typename Walk::C;
    const std::vector<C> weight = Walk(0, count, n).vector(rows.weight, C(1));
    std::vector<C> for_weight(static_cast<size_t>(blocks * n));
    std::vector<C> for_bias(static_cast<size_t>(dbias ? blocks * n : 0));
    parallel_for(blocks, grain_of(block * n), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Walk walk(i * block, std::min(count, (i + 1) * block), n);
        backward_rows(rows, walk, weight, for_weight.data() + i * n,
                      dbias ? for_bias.data() + i * n : nullptr);
      }
    });
    store_sums(dweight, for_weight, n, accumulate);
    if (dbias) store_sums(*dbias, for_bias, n, accumulate);
  };
  visit_host_walk<true>("norm_backward", {&rows.x, &rows.dy, &rows.dx}, compute);
}

}  // namespace host

/// Views a weight or bias as one row of `n` elements; without data when the norm has none.
static Rows norm_vector(const char* what, const MemoryBlock& block, int64_t n) {
  if (!block.data) return {};
  if (block.shape.ndim() != 1 || block.shape[0] != n) {
    fail("norm: ", what, " is ", block.shape, ", expected ", Shape{n});
  }
  return Rows(block, 0);
}

void normalize(const Norm& norm, const MemoryBlock& y, const MemoryBlock& x,
               const MemoryBlock& weight, const MemoryBlock& bias) {
  const Rows in = last_rows(x);
  const NormalizeRows kernel{{norm, in},
                             in,
                             last_rows(y),
                             norm_vector("weight", weight, in.size()),
                             norm_vector("bias", bias, in.size())};
  run_rows(norm.name(), x.device, kernel,
           {{&kernel.x, &kernel.y}, {&kernel.weight, &kernel.bias}, norm.is_cut() ? 0 : 1});
}

void centered_squares(const Norm& norm, const MemoryBlock& out, const MemoryBlock& x) {
  constexpr const char* kWhat = "centered_squares";
  const Rows rows = last_rows(x);
  const CenteredSquaresRows kernel{rows, Rows::values(kWhat, norm.sums[0], rows),
                                   Rows::values(kWhat, out, rows), norm.whole_size};
  run_rows(kWhat, x.device, kernel, {.rows = {&kernel.x}});
}

void norm_sums(const Norm& norm, const MemoryBlock& sum, const MemoryBlock& dot,
               const MemoryBlock& dy, const MemoryBlock& x, const MemoryBlock& weight) {
  constexpr const char* kWhat = "norm_sums";
  const Rows in = last_rows(x);
  const NormSumsRows kernel{{norm, in},
                            last_rows(dy),
                            in,
                            norm_vector("weight", weight, in.size()),
                            sum.data ? Rows::values(kWhat, sum, in) : Rows(),
                            dot.data ? Rows::values(kWhat, dot, in) : Rows()};
  run_rows(kWhat, x.device, kernel,
           {{&kernel.x, &kernel.dy}, {&kernel.weight}, sum.data && dot.data ? 1 : 0});
}

void norm_backward(const Norm& norm, const MemoryBlock& dx, const MemoryBlock& dweight,
                   const MemoryBlock* dbias, const MemoryBlock& dy, const MemoryBlock& x,
                   const MemoryBlock& weight, bool accumulate) {
  const Rows in = last_rows(x);
  NormBackwardRows rows{
      {norm, in}, in, last_rows(dy), last_rows(dx), norm_vector("weight", weight, in.size()),
      {},         {}};
  check_rows(norm.name(), in, rows.dy);
  check_rows(norm.name(), in, rows.dx);
  if (norm.is_cut()) {
    if (norm.centered) rows.given_sum = Rows::values(norm.name(), norm.sums[2], in);
    rows.given_dot = Rows::values(norm.name(), norm.sums[norm.centered ? 3 : 1], in);
  }
  norm_backward(rows, x, dweight, dbias, accumulate);
}

}  // namespace weft
