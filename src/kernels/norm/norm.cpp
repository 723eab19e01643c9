// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/norm/norm.h"

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
      const C mean = walk.template value<C>(sums, r) / static_cast<C>(whole);
      walk.set(out, r, walk.template reduce<SumOf>(CenteredSquare<C>{mean}, in));
    }
  }
};

/// dot[r] = sum of dy * weight * x.
struct RmsNormDotRows {
  Rows dy, x, weight, dot;

  template <class Walk> WEFT_FN void operator()(const Walk& walk) const {
    using C = typename Walk::C;
    auto read_dy = walk.reader(dy), read_x = walk.reader(x);
    auto w = walk.vector(weight, C(1));
    for (int64_t r = walk.begin(); r < walk.end(); r += walk.step()) {
      auto upper = read_dy(r), in = read_x(r);
      walk.set(dot, r, walk.template reduce<SumOf>(ProductOfThree<C>{}, upper, w, in));
    }
  }
};

/// sum[r] = sum of dy * weight and dot[r] = sum of dy * weight * xhat; either may be omitted.
struct LayerNormSumsRows {
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
      const NormRow<C> row = norm.of(walk, in, r);
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

static void normalize(const NormRows& norm, const MemoryBlock& y, const MemoryBlock& x,
                      const MemoryBlock& weight, const MemoryBlock& bias) {
  const Rows in = last_rows(x);
  const NormalizeRows kernel{{norm, in},
                             in,
                             last_rows(y),
                             norm_vector("weight", weight, in.size()),
                             norm_vector("bias", bias, in.size())};
  run_rows(norm.what, x.device, kernel,
           {{&kernel.x, &kernel.y}, {&kernel.weight, &kernel.bias}, norm.cut ? 0 : 1});
}

void rms_norm(const MemoryBlock& y, const MemoryBlock& x, const MemoryBlock& weight, double eps,
              const WholeRows* cut) {
  normalize({"rms_norm", false, eps, cut}, y, x, weight, {});
}

void layer_norm(const MemoryBlock& y, const MemoryBlock& x, const MemoryBlock& weight,
                const MemoryBlock& bias, double eps, const WholeRows* cut) {
  normalize({"layer_norm", true, eps, cut}, y, x, weight, bias);
}

void centered_squares(const MemoryBlock& out, const MemoryBlock& x, const WholeRows& cut) {
  constexpr const char* kWhat = "centered_squares";
  const Rows rows = last_rows(x);
  const CenteredSquaresRows kernel{rows, Rows::values(kWhat, cut.sums[0], rows),
                                   Rows::values(kWhat, out, rows), cut.size};
  run_rows(kWhat, x.device, kernel, {.rows = {&kernel.x}});
}

void rms_norm_dot(const MemoryBlock& dot, const MemoryBlock& dy, const MemoryBlock& x,
                  const MemoryBlock& weight) {
  constexpr const char* kWhat = "rms_norm_dot";
  const Rows in = last_rows(x);
  const RmsNormDotRows kernel{last_rows(dy), in, norm_vector("weight", weight, in.size()),
                              Rows::values(kWhat, dot, in)};
  run_rows(kWhat, x.device, kernel, {{&kernel.x, &kernel.dy}, {&kernel.weight}});
}

void layer_norm_sums(const MemoryBlock& sum, const MemoryBlock& dot, const MemoryBlock& dy,
                     const MemoryBlock& x, const MemoryBlock& weight, double eps,
                     const WholeRows& cut) {
  constexpr const char* kWhat = "layer_norm_sums";
  const Rows in = last_rows(x);
  const LayerNormSumsRows kernel{{{kWhat, true, eps, &cut}, in},
                                 last_rows(dy),
                                 in,
                                 norm_vector("weight", weight, in.size()),
                                 sum.data ? Rows::values(kWhat, sum, in) : Rows(),
                                 dot.data ? Rows::values(kWhat, dot, in) : Rows()};
  run_rows(kWhat, x.device, kernel,
           {{&kernel.x, &kernel.dy}, {&kernel.weight}, sum.data && dot.data ? 1 : 0});
}

static void run_norm_backward(const NormRows& norm, const MemoryBlock* dx,
                              const MemoryBlock* dweight, const MemoryBlock* dbias,
                              const MemoryBlock& dy, const MemoryBlock& x,
                              const MemoryBlock& weight, bool accumulate) {
  const Rows in = last_rows(x);
  NormBackwardRows rows{{norm, in},
                        in,
                        last_rows(dy),
                        dx ? last_rows(*dx) : Rows(),
                        norm_vector("weight", weight, in.size()),
                        {},
                        {}};
  check_rows(norm.what, in, rows.dy);
  if (dx) check_rows(norm.what, in, rows.dx);
  if (norm.cut && dx) {
    if (norm.centered) rows.given_sum = Rows::values(norm.what, norm.cut->sums[2], in);
    rows.given_dot = Rows::values(norm.what, norm.cut->sums[norm.centered ? 3 : 1], in);
  }
  norm_backward(rows, x, dweight, dbias, accumulate);
}

void rms_norm_backward(const MemoryBlock* dx, const MemoryBlock* dweight, const MemoryBlock& dy,
                       const MemoryBlock& x, const MemoryBlock& weight, double eps,
                       const WholeRows* cut, bool accumulate) {
  run_norm_backward({"rms_norm_backward", false, eps, cut}, dx, dweight, nullptr, dy, x, weight,
                    accumulate);
}

void layer_norm_backward(const MemoryBlock* dx, const MemoryBlock* dweight,
                         const MemoryBlock* dbias, const MemoryBlock& dy, const MemoryBlock& x,
                         const MemoryBlock& weight, double eps, const WholeRows* cut,
                         bool accumulate) {
  run_norm_backward({"layer_norm_backward", true, eps, cut}, dx, dweight, dbias, dy, x, weight,
                    accumulate);
}

}  // namespace weft
