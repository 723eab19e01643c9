// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/softmax/softmax.h"

#include "src/kernels/softmax/softmax_rows.h"

namespace weft {
namespace {

/// Softmax or log-softmax; of whole rows if `max` has no data.
struct SoftmaxRows {
  Rows x, y, max, sum;
  bool logarithm;

  template <class Walk> WEFT_FN void operator()(const Walk& walk) const {
    using C = typename Walk::C;
    auto read = walk.held_reader(x, 0);
    auto&& out = walk.writer(y);
    for (int64_t r = walk.begin(); r < walk.end(); r += walk.step()) {
      auto in = read(r);
      SoftmaxRow<C> row{};
      if (max.data()) {
        row = {finite_or_zero(value_of<C>(max, r)), value_of<C>(sum, r)};
      }
      if (logarithm) {
        if (!max.data()) row = softmax_row(walk, in);
        walk.map(LogSoftmax<C>{row.max, log(finite_or_nan(row.sum))}, out, r, in);
      } else {
        write_softmax(walk, out, r, in, max.data() ? &row : nullptr, C(1), NoTarget());
      }
    }
  }
};

struct LogSumExpRows {
  Rows x, out;

  template <class Walk> WEFT_FN void operator()(const Walk& walk) const {
    auto read = walk.reader(x);
    for (int64_t r = walk.begin(); r < walk.end(); r += walk.step()) {
      auto in = read(r);
      const auto row = softmax_row(walk, in);
      walk.set(out, r, row.max + log(row.sum));
    }
  }
};

/// sum[r] = sum of exp(x - max[r]).
struct SumExpRows {
  Rows x, max, sum;

  template <class Walk> WEFT_FN void operator()(const Walk& walk) const {
    using C = typename Walk::C;
    auto read = walk.reader(x);
    for (int64_t r = walk.begin(); r < walk.end(); r += walk.step()) {
      auto in = read(r);
      const ExpAbove<C> above{finite_or_zero(value_of<C>(max, r))};
      walk.set(sum, r, walk.template reduce<SumOf>(above, in));
    }
  }
};

struct DotRows {
  Rows a, b, dot;

  template <class Walk> WEFT_FN void operator()(const Walk& walk) const {
    auto read_a = walk.reader(a), read_b = walk.reader(b);
    for (int64_t r = walk.begin(); r < walk.end(); r += walk.step()) {
      auto left = read_a(r), right = read_b(r);
      walk.set(dot, r, walk.template reduce<SumOf>(ProductOfTwo<typename Walk::C>{}, left, right));
    }
  }
};

/// The gradient of softmax or log-softmax; `given` is the row's statistic if the caller has it.
struct SoftmaxBackwardRows {
  static constexpr bool kReadsBf16 = true;
  Rows dx, dy, y, given;
  bool logarithm;

  template <class Walk> WEFT_FN void operator()(const Walk& walk) const {
    using C = typename Walk::C;
    auto read_dy = walk.held_reader(dy, 0);
    auto read_y = logarithm ? walk.reader(y) : walk.held_reader(y, 1);
    auto&& out = walk.writer(dx);
    for (int64_t r = walk.begin(); r < walk.end(); r += walk.step()) {
      auto upper = read_dy(r), result = read_y(r);
      C statistic = C(0);
      if (given.data()) {
        statistic = value_of<C>(given, r);
      } else if (logarithm) {
        statistic = walk.template reduce<SumOf>(AsItIs{}, upper);
      } else {
        statistic = walk.template reduce<SumOf>(ProductOfTwo<C>{}, upper, result);
      }
      logarithm ? walk.map(LogSoftmaxGradient<C>{statistic}, out, r, upper, result)
                : walk.map(SoftmaxGradient<C>{statistic}, out, r, upper, result);
    }
  }
};

/// dx = dy[r] * exp(x - lse[r]).
struct LogSumExpBackwardRows {
  Rows dx, x, dy, lse;

  template <class Walk> WEFT_FN void operator()(const Walk& walk) const {
    using C = typename Walk::C;
    auto read = walk.reader(x);
    auto&& out = walk.writer(dx);
    for (int64_t r = walk.begin(); r < walk.end(); r += walk.step()) {
      auto in = read(r);
      walk.map(ScaledExp<C>{value_of<C>(lse, r), value_of<C>(dy, r)}, out, r, in);
    }
  }
};

struct LogSumExpOf {
  template <class T> WEFT_FN T operator()(T max, T sum) const {
    return finite_or_zero(max) + log(sum);
  }
};

}  // namespace

void softmax(const MemoryBlock& y, const MemoryBlock& x, int dim, bool logarithm,
             const MemoryBlock* max, const MemoryBlock* sum) {
  const char* what = logarithm ? "log_softmax" : "softmax";
  const Rows in(x, dim);
  const SoftmaxRows kernel{in, Rows(y, dim), max ? Rows::values(what, *max, in) : Rows(),
                           max ? Rows::values(what, *sum, in) : Rows(), logarithm};
  run_rows(what, x.device, kernel, {.rows = {&kernel.x, &kernel.y}, .held = max ? 0 : 1});
}

void logsumexp(const MemoryBlock& out, const MemoryBlock& x, int dim) {
  const Rows in(x, dim);
  const LogSumExpRows kernel{in, Rows::values("logsumexp", out, in)};
  run_rows("logsumexp", x.device, kernel, {.rows = {&kernel.x}});
}

void logsumexp(const MemoryBlock& out, const MemoryBlock& max, const MemoryBlock& sum) {
  map_floating(LogSumExpOf{}, out, max, sum);
}

void row_sum_exp(const MemoryBlock& sum, const MemoryBlock& x, int dim, const MemoryBlock& max) {
  constexpr const char* kWhat = "row_sum_exp";
  const Rows in(x, dim);
  const SumExpRows kernel{in, Rows::values(kWhat, max, in), Rows::values(kWhat, sum, in)};
  run_rows(kWhat, x.device, kernel, {.rows = {&kernel.x}});
}

void row_dot(const MemoryBlock& dot, const MemoryBlock& a, const MemoryBlock& b, int dim) {
  const Rows left(a, dim);
  const DotRows kernel{left, Rows(b, dim), Rows::values("row_dot", dot, left)};
  run_rows("row_dot", a.device, kernel, {.rows = {&kernel.a, &kernel.b}});
}

void softmax_backward(const MemoryBlock& dx, const MemoryBlock& dy, const MemoryBlock& y, int dim,
                      bool logarithm, const MemoryBlock* given) {
  const char* what = logarithm ? "log_softmax_backward" : "softmax_backward";
  const Rows in(y, dim);
  const SoftmaxBackwardRows kernel{Rows(dx, dim), Rows(dy, dim), in,
                                   given ? Rows::values(what, *given, in) : Rows(), logarithm};
  run_rows(what, y.device, kernel,
           {.rows = {&kernel.y, &kernel.dy, &kernel.dx},
            .held = given       ? 0
                    : logarithm ? 1
                                : 2});
}

void logsumexp_backward(const MemoryBlock& dx, const MemoryBlock& dy, const MemoryBlock& x,
                        const MemoryBlock& lse, int dim) {
  constexpr const char* kWhat = "logsumexp_backward";
  const Rows in(x, dim);
  const LogSumExpBackwardRows kernel{Rows(dx, dim), in, Rows::values(kWhat, dy, in),
                                     Rows::values(kWhat, lse, in)};
  run_rows(kWhat, x.device, kernel, {.rows = {&kernel.x, &kernel.dx}});
}

}  // namespace weft
