// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/softmax/cuda.h"

#include "src/kernels/softmax/cuda_rows.h"

namespace weft::cuda {

namespace {

/// Softmax or log-softmax.
struct SoftmaxRows {
  RowSide x, y, max, sum;
  bool logarithm;
  RowWork work{};

  template <class Line, class Team>
  WEFT_DEVICE void run(const Team& team) const {
    using C = typename Line::C;
    const int64_t chunks = work.size / Line::kN;
    for (int64_t r = team.team(); r < work.count; r += team.teams()) {
      HeldLine<Line> in(x, r, work.template held<Line>(team, 0));
      const SoftmaxRow<C> row =
          max.data ? SoftmaxRow<C>{finite_or_zero(value_of<C>(max, r)), value_of<C>(sum, r)}
                   : softmax_row_of(team, chunks, in);
      if (logarithm) {
        map_line(team, chunks, LogSoftmax<C>{row.max, log(row.sum)}, Line(y, r), in);
      } else {
        map_line(team, chunks, ScaledExp<C>{row.max, C(1) / row.sum}, Line(y, r), in);
      }
    }
  }
};

struct LogSumExpOfRows {
  RowSide x, out;
  RowWork work{};

  template <class Line, class Team>
  WEFT_DEVICE void run(const Team& team) const {
    using C = typename Line::C;
    for (int64_t r = team.team(); r < work.count; r += team.teams()) {
      HeldLine<Line> in(x, r, nullptr);
      const SoftmaxRow<C> row = softmax_row_of(team, work.size / Line::kN, in);
      if (team.thread() == 0) set_value(out, r, row.max + log(row.sum));
    }
  }
};

/// sum[r] = sum of exp(x - max[r]).
struct SumExpOfRows {
  RowSide x, max, sum;
  RowWork work{};

  template <class Line, class Team>
  WEFT_DEVICE void run(const Team& team) const {
    using C = typename Line::C;
    for (int64_t r = team.team(); r < work.count; r += team.teams()) {
      HeldLine<Line> in(x, r, nullptr);
      const ExpAbove<C> above{finite_or_zero(value_of<C>(max, r))};
      const C value = reduce_line<SumOf>(team, work.size / Line::kN, above, in);
      if (team.thread() == 0) set_value(sum, r, value);
    }
  }
};

struct DotsOfRows {
  RowSide a, b, dot;
  RowWork work{};

  template <class Line, class Team>
  WEFT_DEVICE void run(const Team& team) const {
    using C = typename Line::C;
    for (int64_t r = team.team(); r < work.count; r += team.teams()) {
      HeldLine<Line> left(a, r, nullptr), right(b, r, nullptr);
      const C value =
          reduce_line<SumOf>(team, work.size / Line::kN, ProductOfTwo<C>{}, left, right);
      if (team.thread() == 0) set_value(dot, r, value);
    }
  }
};

/// The gradient of softmax or log-softmax; `given` is the row's statistic if the caller has it.
struct SoftmaxBackward {
  RowSide dx, dy, y, given;
  bool logarithm;
  RowWork work{};

  template <class Line, class Team>
  WEFT_DEVICE void run(const Team& team) const {
    using C = typename Line::C;
    const int64_t chunks = work.size / Line::kN;
    for (int64_t r = team.team(); r < work.count; r += team.teams()) {
      HeldLine<Line> upper(dy, r, work.template held<Line>(team, 0));
      HeldLine<Line> result(y, r, logarithm ? nullptr : work.template held<Line>(team, 1));
      if (logarithm) {
        const C sum =
            given.data ? value_of<C>(given, r) : reduce_line<SumOf>(team, chunks, AsItIs{}, upper);
        map_line(team, chunks, LogSoftmaxGradient<C>{sum}, Line(dx, r), upper, result);
      } else {
        const C dot = given.data
                          ? value_of<C>(given, r)
                          : reduce_line<SumOf>(team, chunks, ProductOfTwo<C>{}, upper, result);
        map_line(team, chunks, SoftmaxGradient<C>{dot}, Line(dx, r), upper, result);
      }
    }
  }
};

/// dx = dy[r] * exp(x - lse[r]).
struct LogSumExpBackward {
  RowSide dx, x, dy, lse;
  RowWork work{};

  template <class Line, class Team>
  WEFT_DEVICE void run(const Team& team) const {
    using C = typename Line::C;
    for (int64_t r = team.team(); r < work.count; r += team.teams()) {
      HeldLine<Line> in(x, r, nullptr);
      const ScaledExp<C> f{finite_or_zero(value_of<C>(lse, r)), value_of<C>(dy, r)};
      map_line(team, work.size / Line::kN, f, Line(dx, r), in);
    }
  }
};

}  // namespace

static void map_softmax_rows(const char* what, const Block& y, const Block& x, int dim,
                             const Block* max, const Block* sum, bool logarithm) {
  const Rows in(x, dim);
  check_rows(what, in, Rows(y, dim));
  const SoftmaxRows body{RowSide(x, dim), RowSide(y, dim),
                         max ? value_side(what, *max, in) : RowSide{},
                         max ? value_side(what, *sum, in) : RowSide{}, logarithm};
  launch_rows(
      body, plan_rows(what, x.device, in.count(), in.size(), {&body.x, &body.y}, {}, max ? 0 : 1));
}

void softmax(const Block& y, const Block& x, int dim, const Block* max, const Block* sum) {
  map_softmax_rows("softmax", y, x, dim, max, sum, false);
}

void log_softmax(const Block& y, const Block& x, int dim, const Block* max, const Block* sum) {
  map_softmax_rows("log_softmax", y, x, dim, max, sum, true);
}

void logsumexp(const Block& out, const Block& x, int dim) {
  const Rows in(x, dim);
  const LogSumExpOfRows body{RowSide(x, dim), value_side("logsumexp", out, in)};
  launch_rows(body, plan_rows("logsumexp", x.device, in.count(), in.size(), {&body.x}, {}, 0));
}

void row_sum_exp(const Block& sum, const Block& x, int dim, const Block& max) {
  constexpr const char* kWhat = "row_sum_exp";
  const Rows in(x, dim);
  const SumExpOfRows body{RowSide(x, dim), value_side(kWhat, max, in), value_side(kWhat, sum, in)};
  launch_rows(body, plan_rows(kWhat, x.device, in.count(), in.size(), {&body.x}, {}, 0));
}

void row_dot(const Block& dot, const Block& a, const Block& b, int dim) {
  const Rows left(a, dim);
  check_rows("row_dot", left, Rows(b, dim));
  const DotsOfRows body{RowSide(a, dim), RowSide(b, dim), value_side("row_dot", dot, left)};
  launch_rows(body,
              plan_rows("row_dot", a.device, left.count(), left.size(), {&body.a, &body.b}, {}, 0));
}

static void map_gradient_rows(const char* what, const Block& dx, const Block& dy, const Block& y,
                              int dim, const Block* given, bool logarithm) {
  const Rows upper(dy, dim);
  check_rows(what, upper, Rows(y, dim));
  check_rows(what, upper, Rows(dx, dim));
  const SoftmaxBackward body{RowSide(dx, dim), RowSide(dy, dim), RowSide(y, dim),
                             given ? value_side(what, *given, upper) : RowSide{}, logarithm};
  const int held = logarithm ? 1 : 2;
  launch_rows(body, plan_rows(what, y.device, upper.count(), upper.size(),
                              {&body.y, &body.dy, &body.dx}, {}, given ? 0 : held));
}

void softmax_backward(const Block& dx, const Block& dy, const Block& y, int dim, const Block* dot) {
  map_gradient_rows("softmax_backward", dx, dy, y, dim, dot, false);
}

void log_softmax_backward(const Block& dx, const Block& dy, const Block& y, int dim,
                          const Block* sum) {
  map_gradient_rows("log_softmax_backward", dx, dy, y, dim, sum, true);
}

void logsumexp_backward(const Block& dx, const Block& dy, const Block& x, const Block& lse,
                        int dim) {
  constexpr const char* kWhat = "logsumexp_backward";
  const Rows in(x, dim);
  check_rows(kWhat, Rows(dx, dim), in);
  const LogSumExpBackward body{RowSide(dx, dim), RowSide(x, dim), value_side(kWhat, dy, in),
                               value_side(kWhat, lse, in)};
  launch_rows(body, plan_rows(kWhat, x.device, in.count(), in.size(), {&body.x, &body.dx}, {}, 0));
}

}  // namespace weft::cuda
