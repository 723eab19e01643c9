// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/softmax/softmax.h"

#include <cmath>

#include "src/base/parallel.h"
#include "src/device/cuda/streams.h"
#include "src/kernels/map/map.h"
#include "src/kernels/math/reducers.h"
#include "src/kernels/rows/row_statistics.h"
#include "src/kernels/rows/rows.h"
#include "src/kernels/softmax/cuda.h"

namespace weft {

void row_sum_exp(const Block& sum, const Block& x, int dim, const Block& max) {
  if (cuda::kWithCuda && cuda::on_cuda(x)) return cuda::row_sum_exp(sum, x, dim, max);
  const Rows rows(x, dim), sums = Rows::values("row_sum_exp", sum, rows);
  const Rows maxima = Rows::values("row_sum_exp", max, rows);
  visit_compute_floating("row_sum_exp", x.dtype, [&](auto type) {
    using C = typename decltype(type)::type;
    parallel_for(rows.count(), grain_of(rows.size()), [&](int64_t begin, int64_t end) {
      RowReader<C> read(rows, end);
      for (int64_t r = begin; r < end; ++r) {
        const ExpAbove<C> above{finite_or_zero(RowValues<C>(maxima)[r])};
        RowValues<C>(sums).set(r, reduce_row<SumOf, C>(rows.size(), above, read(r)));
      }
    });
  });
}

/// y = f(x) by rows; `F` handles whole rows, and parts of rows with given statistics.
template <class F>
static void map_softmax_rows(const char* what, const Block& y, const Block& x, int dim,
                             const Block* max, const Block* sum, const F& f) {
  const Rows in(x, dim), out(y, dim);
  check_rows(what, in, out);
  const Rows maxima = max ? Rows::values(what, *max, in) : in;
  const Rows sums = max ? Rows::values(what, *sum, in) : in;
  const int64_t n = in.size();
  visit_compute_floating(what, x.dtype, [&](auto type) {
    using C = typename decltype(type)::type;
    parallel_for(in.count(), grain_of(n), [&](int64_t begin, int64_t end) {
      RowReader<C> read(in, end);
      RowWriter<C> write(out, end);
      for (int64_t r = begin; r < end; ++r) {
        const C* row = read(r);
        C* result = write.begin(r);
        if (max) {
          const C greatest = finite_or_zero(RowValues<C>(maxima)[r]);
          map_row(n, f.part(SoftmaxRow<C>{greatest, RowValues<C>(sums)[r]}), result, row);
        } else {
          f.whole(n, result, row);
        }
        write.end();
      }
    });
  });
}

struct SoftmaxOfRow {
  template <class C>
  void whole(int64_t n, C* y, const C* x) const {
    softmax_of_row(n, y, x, C(1));
  }
  template <class C>
  ScaledExp<C> part(const SoftmaxRow<C>& row) const {
    return {row.max, C(1) / row.sum};
  }
};

struct LogSoftmaxOfRow {
  template <class C>
  void whole(int64_t n, C* y, const C* x) const {
    map_row(n, part(softmax_row(x, n)), y, x);
  }
  template <class C>
  LogSoftmax<C> part(const SoftmaxRow<C>& row) const {
    return {row.max, log(row.sum)};
  }
};

void softmax(const Block& y, const Block& x, int dim, const Block* max, const Block* sum) {
  if (cuda::kWithCuda && cuda::on_cuda(x)) return cuda::softmax(y, x, dim, max, sum);
  map_softmax_rows("softmax", y, x, dim, max, sum, SoftmaxOfRow{});
}

void log_softmax(const Block& y, const Block& x, int dim, const Block* max, const Block* sum) {
  if (cuda::kWithCuda && cuda::on_cuda(x)) return cuda::log_softmax(y, x, dim, max, sum);
  map_softmax_rows("log_softmax", y, x, dim, max, sum, LogSoftmaxOfRow{});
}

void logsumexp(const Block& out, const Block& x, int dim) {
  if (cuda::kWithCuda && cuda::on_cuda(x)) return cuda::logsumexp(out, x, dim);
  const Rows rows(x, dim), results = Rows::values("logsumexp", out, rows);
  visit_compute_floating("logsumexp", x.dtype, [&](auto type) {
    using C = typename decltype(type)::type;
    parallel_for(rows.count(), grain_of(rows.size()), [&](int64_t begin, int64_t end) {
      RowReader<C> read(rows, end);
      for (int64_t r = begin; r < end; ++r) {
        const SoftmaxRow<C> row = softmax_row(read(r), rows.size());
        RowValues<C>(results).set(r, row.max + log(row.sum));
      }
    });
  });
}

struct LogSumExpOf {
  template <class T>
  WEFT_FN T operator()(T max, T sum) const {
    return finite_or_zero(max) + log(sum);
  }
};

void logsumexp(const Block& out, const Block& max, const Block& sum) {
  map_floating(LogSumExpOf{}, out, max, sum);
}

void row_dot(const Block& dot, const Block& a, const Block& b, int dim) {
  if (cuda::kWithCuda && cuda::on_cuda(a)) return cuda::row_dot(dot, a, b, dim);
  const Rows left(a, dim), right(b, dim), dots = Rows::values("row_dot", dot, left);
  check_rows("row_dot", left, right);
  visit_compute_floating("row_dot", a.dtype, [&](auto type) {
    using C = typename decltype(type)::type;
    parallel_for(left.count(), grain_of(left.size()), [&](int64_t begin, int64_t end) {
      RowReader<C> read_left(left, end), read_right(right, end);
      for (int64_t r = begin; r < end; ++r) {
        const C value =
            reduce_row<SumOf, C>(left.size(), ProductOfTwo<C>{}, read_left(r), read_right(r));
        RowValues<C>(dots).set(r, value);
      }
    });
  });
}

/// dx = f(dy, y) by rows; `gradient` computes a row's statistic and makes the functor from it.
template <class Gradient>
static void map_gradient_rows(const char* what, const Block& dx, const Block& dy, const Block& y,
                              int dim, const Block* given, const Gradient& gradient) {
  const Rows out(dx, dim), upper(dy, dim), result(y, dim);
  check_rows(what, upper, result);
  check_rows(what, upper, out);
  const Rows values = given ? Rows::values(what, *given, upper) : upper;
  visit_compute_floating(what, y.dtype, [&](auto type) {
    using C = typename decltype(type)::type;
    const int64_t n = upper.size();
    parallel_for(upper.count(), grain_of(n), [&](int64_t begin, int64_t end) {
      RowReader<C> read_upper(upper, end), read_result(result, end);
      RowWriter<C> write(out, end);
      for (int64_t r = begin; r < end; ++r) {
        const C *g = read_upper(r), *v = read_result(r);
        const C statistic = given ? RowValues<C>(values)[r] : gradient.statistic(n, g, v);
        map_row(n, gradient.functor(statistic), write.begin(r), g, v);
        write.end();
      }
    });
  });
}

struct OfSoftmax {
  template <class C>
  C statistic(int64_t n, const C* dy, const C* y) const {
    return reduce_row<SumOf, C>(n, ProductOfTwo<C>{}, dy, y);
  }
  template <class C>
  SoftmaxGradient<C> functor(C dot) const {
    return {dot};
  }
};

struct OfLogSoftmax {
  template <class C>
  C statistic(int64_t n, const C* dy, const C*) const {
    return reduce_row<SumOf, C>(n, AsItIs{}, dy);
  }
  template <class C>
  LogSoftmaxGradient<C> functor(C sum) const {
    return {sum};
  }
};

void softmax_backward(const Block& dx, const Block& dy, const Block& y, int dim, const Block* dot) {
  if (cuda::kWithCuda && cuda::on_cuda(y)) return cuda::softmax_backward(dx, dy, y, dim, dot);
  map_gradient_rows("softmax_backward", dx, dy, y, dim, dot, OfSoftmax{});
}

void log_softmax_backward(const Block& dx, const Block& dy, const Block& y, int dim,
                          const Block* sum) {
  if (cuda::kWithCuda && cuda::on_cuda(y)) return cuda::log_softmax_backward(dx, dy, y, dim, sum);
  map_gradient_rows("log_softmax_backward", dx, dy, y, dim, sum, OfLogSoftmax{});
}

void logsumexp_backward(const Block& dx, const Block& dy, const Block& x, const Block& lse,
                        int dim) {
  if (cuda::kWithCuda && cuda::on_cuda(x)) return cuda::logsumexp_backward(dx, dy, x, lse, dim);
  const Rows out(dx, dim), in(x, dim);
  check_rows("logsumexp_backward", out, in);
  const Rows upper = Rows::values("logsumexp_backward", dy, in);
  const Rows results = Rows::values("logsumexp_backward", lse, in);
  visit_compute_floating("logsumexp_backward", x.dtype, [&](auto type) {
    using C = typename decltype(type)::type;
    parallel_for(in.count(), grain_of(in.size()), [&](int64_t begin, int64_t end) {
      RowReader<C> read(in, end);
      RowWriter<C> write(out, end);
      for (int64_t r = begin; r < end; ++r) {
        const ScaledExp<C> f{finite_or_zero(RowValues<C>(results)[r]), RowValues<C>(upper)[r]};
        map_row(in.size(), f, write.begin(r), read(r));
        write.end();
      }
    });
  });
}

}  // namespace weft
