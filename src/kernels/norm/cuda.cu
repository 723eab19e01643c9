// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/norm/cuda.h"

#include "src/kernels/norm/cuda_rows.h"

namespace weft::cuda {

namespace {

/// y = xhat * weight + bias, or without bias.
struct NormalizeRows {
  NormStatisticsSide norm;
  RowSide x, y, weight, bias;
  RowWork work{};

  template <class Line, class Team>
  WEFT_DEVICE void run(const Team& team) const {
    using C = typename Line::C;
    const int64_t chunks = work.size / Line::kN;
    const VectorLine<Line> w(weight, C(1)), b(bias, C(0));
    for (int64_t r = team.team(); r < work.count; r += team.teams()) {
      HeldLine<Line> in(x, r, work.template held<Line>(team, 0));
      const NormRow<C> row = norm.template of<C>(team, chunks, in, r);
      const Normalized<C> f{row.mean, row.rstd};
      if (bias.data) {
        map_line(team, chunks, f, Line(y, r), in, w, b);
      } else {
        map_line(team, chunks, f, Line(y, r), in, w);
      }
    }
  }
};

/// out[r] = sum of (x - mean)^2.
struct CenteredSquaresOfRows {
  RowSide x, sums, out;
  int64_t whole;
  RowWork work{};

  template <class Line, class Team>
  WEFT_DEVICE void run(const Team& team) const {
    using C = typename Line::C;
    for (int64_t r = team.team(); r < work.count; r += team.teams()) {
      HeldLine<Line> in(x, r, nullptr);
      const CenteredSquare<C> f{value_of<C>(sums, r) / static_cast<C>(whole)};
      const C value = reduce_line<SumOf>(team, work.size / Line::kN, f, in);
      if (team.thread() == 0) set_value(out, r, value);
    }
  }
};

/// dot[r] = sum of dy * weight * x.
struct RmsNormDots {
  RowSide dy, x, weight, dot;
  RowWork work{};

  template <class Line, class Team>
  WEFT_DEVICE void run(const Team& team) const {
    using C = typename Line::C;
    VectorLine<Line> w(weight, C(1));
    for (int64_t r = team.team(); r < work.count; r += team.teams()) {
      HeldLine<Line> upper(dy, r, nullptr), in(x, r, nullptr);
      const C value =
          reduce_line<SumOf>(team, work.size / Line::kN, ProductOfThree<C>{}, upper, w, in);
      if (team.thread() == 0) set_value(dot, r, value);
    }
  }
};

/// sum[r] = sum of dy * weight and dot[r] = sum of dy * weight * xhat; either may be omitted.
struct LayerNormSumsOfRows {
  NormStatisticsSide norm;
  RowSide dy, x, weight, sum, dot;
  RowWork work{};

  template <class Line, class Team>
  WEFT_DEVICE void run(const Team& team) const {
    using C = typename Line::C;
    const int64_t chunks = work.size / Line::kN;
    VectorLine<Line> w(weight, C(1));
    for (int64_t r = team.team(); r < work.count; r += team.teams()) {
      HeldLine<Line> upper(dy, r, work.template held<Line>(team, 0)), in(x, r, nullptr);
      if (sum.data) {
        const C value = reduce_line<SumOf>(team, chunks, ProductOfTwo<C>{}, upper, w);
        if (team.thread() == 0) set_value(sum, r, value);
      }
      if (!dot.data) continue;
      const NormRow<C> row = norm.template of<C>(team, chunks, in, r);
      const C value =
          reduce_line<SumOf>(team, chunks, NormDot<C>{row.mean, row.rstd}, upper, w, in);
      if (team.thread() == 0) set_value(dot, r, value);
    }
  }
};

}  // namespace

static void normalize(const char* what, const NormRows& norm, const Block& y, const Block& x,
                      const Block& weight, const Block& bias) {
  const Rows in = last_rows(x);
  check_rows("norm", in, last_rows(y));
  const NormalizeRows body{{norm, in},
                           norm_side(x),
                           norm_side(y),
                           norm_vector_side("norm: weight", weight, in.size()),
                           norm_vector_side("norm: bias", bias, in.size())};
  launch_rows(body, plan_rows(what, x.device, in.count(), in.size(), {&body.x, &body.y},
                              {&body.weight, &body.bias}, norm.cut ? 0 : 1));
}

void rms_norm(const Block& y, const Block& x, const Block& weight, double eps, const CutRows* cut) {
  normalize("rms_norm", {false, eps, cut}, y, x, weight, {});
}

void layer_norm(const Block& y, const Block& x, const Block& weight, const Block& bias, double eps,
                const CutRows* cut) {
  normalize("layer_norm", {true, eps, cut}, y, x, weight, bias);
}

void centered_squares(const Block& out, const Block& x, const CutRows& cut) {
  const Rows rows = last_rows(x);
  const CenteredSquaresOfRows body{norm_side(x), value_side("centered_squares", cut.sums[0], rows),
                                   value_side("centered_squares", out, rows), cut.size};
  launch_rows(body,
              plan_rows("centered_squares", x.device, rows.count(), rows.size(), {&body.x}, {}, 0));
}

void rms_norm_dot(const Block& dot, const Block& dy, const Block& x, const Block& weight) {
  const Rows in = last_rows(x);
  check_rows("rms_norm_dot", in, last_rows(dy));
  const RmsNormDots body{norm_side(dy), norm_side(x),
                         norm_vector_side("norm: weight", weight, in.size()),
                         value_side("rms_norm_dot", dot, in)};
  launch_rows(body, plan_rows("rms_norm_dot", x.device, in.count(), in.size(), {&body.x, &body.dy},
                              {&body.weight}, 0));
}

void layer_norm_sums(const Block& sum, const Block& dot, const Block& dy, const Block& x,
                     const Block& weight, double eps, const CutRows& cut) {
  constexpr const char* kWhat = "layer_norm_sums";
  const Rows in = last_rows(x);
  check_rows(kWhat, in, last_rows(dy));
  const LayerNormSumsOfRows body{{NormRows{true, eps, &cut}, in},
                                 norm_side(dy),
                                 norm_side(x),
                                 norm_vector_side("norm: weight", weight, in.size()),
                                 sum.data ? value_side(kWhat, sum, in) : RowSide{},
                                 dot.data ? value_side(kWhat, dot, in) : RowSide{}};
  launch_rows(body, plan_rows(kWhat, x.device, in.count(), in.size(), {&body.x, &body.dy},
                              {&body.weight}, sum.data && dot.data ? 1 : 0));
}

}  // namespace weft::cuda
