// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/norm/norm.h"

#include "src/kernels/copy/copy.h"
#include "src/kernels/norm/norm_rows.h"
#include "weft/error.h"

namespace weft {
namespace {

/// y = xhat * weight + bias, or without bias.
struct NormalizeRows {
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
      if (bias.data()) {
        walk.map(f, out, r, in, w, b);
      } else {
        walk.map(f, out, r, in, w);
      }
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

void norm_backward(const Norm& norm, const MemoryBlock* dx, const MemoryBlock* dweight,
                   const MemoryBlock* dbias, const MemoryBlock& dy, const MemoryBlock& x,
                   const MemoryBlock& weight, bool accumulate) {
  const Rows in = last_rows(x);
  NormBackwardRows rows{{norm, in},
                        in,
                        last_rows(dy),
                        dx ? last_rows(*dx) : Rows(),
                        norm_vector("weight", weight, in.size()),
                        {},
                        {}};
  check_rows(norm.name(), in, rows.dy);
  if (dx) check_rows(norm.name(), in, rows.dx);
  if (norm.is_cut() && dx) {
    if (norm.centered) rows.given_sum = Rows::values(norm.name(), norm.sums[2], in);
    rows.given_dot = Rows::values(norm.name(), norm.sums[norm.centered ? 3 : 1], in);
  }
  norm_backward(rows, x, dweight, dbias, accumulate);
}

}  // namespace weft
