// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/norm/norm.h"

#include "src/device/cuda/streams.h"
#include "src/kernels/norm/cpu_rows.h"
#include "src/kernels/norm/cuda.h"

namespace weft {

/// y = xhat * weight + bias, or without bias, row by row.
template <class C>
static void normalize_as(const NormRows& norm, const Block& y, const Block& x, const Block& weight,
                         const Block& bias) {
  const Rows in = last_rows(x), out = last_rows(y);
  check_rows("norm", in, out);
  const int64_t n = in.size();
  const std::vector<C> weights = norm_vector<C>("norm: weight", weight, n, C(1));
  const std::vector<C> biases = norm_vector<C>("norm: bias", bias, n, C(0));
  const bool has_bias = bias.data != nullptr;
  const NormStatistics<C> statistics(norm, in);
  parallel_for(in.count(), grain_of(n), [&](int64_t begin, int64_t end) {
    RowReader<C> read(in, end);
    RowWriter<C> write(out, end);
    for (int64_t r = begin; r < end; ++r) {
      const C* row = read(r);
      const NormRow<C> row_norm = statistics.of(row, r);
      const Normalized<C> f{row_norm.mean, row_norm.rstd};
      if (has_bias) {
        map_row(n, f, write.begin(r), row, weights.data(), biases.data());
      } else {
        map_row(n, f, write.begin(r), row, weights.data());
      }
      write.end();
    }
  });
}

void rms_norm(const Block& y, const Block& x, const Block& weight, double eps, const CutRows* cut) {
  if (cuda::kWithCuda && cuda::on_cuda(y)) return cuda::rms_norm(y, x, weight, eps, cut);
  visit_compute_floating("rms_norm", x.dtype, [&](auto type) {
    normalize_as<typename decltype(type)::type>({false, eps, cut}, y, x, weight, {});
  });
}

void layer_norm(const Block& y, const Block& x, const Block& weight, const Block& bias, double eps,
                const CutRows* cut) {
  if (cuda::kWithCuda && cuda::on_cuda(y)) return cuda::layer_norm(y, x, weight, bias, eps, cut);
  visit_compute_floating("layer_norm", x.dtype, [&](auto type) {
    normalize_as<typename decltype(type)::type>({true, eps, cut}, y, x, weight, bias);
  });
}

void centered_squares(const Block& out, const Block& x, const CutRows& cut) {
  if (cuda::kWithCuda && cuda::on_cuda(out)) return cuda::centered_squares(out, x, cut);
  const Rows rows = last_rows(x);
  const Rows results = Rows::values("centered_squares", out, rows);
  const Rows sums = Rows::values("centered_squares", cut.sums[0], rows);
  visit_compute_floating("centered_squares", x.dtype, [&](auto type) {
    using C = typename decltype(type)::type;
    parallel_for(rows.count(), grain_of(rows.size()), [&](int64_t begin, int64_t end) {
      RowReader<C> read(rows, end);
      for (int64_t r = begin; r < end; ++r) {
        const CenteredSquare<C> f{RowValues<C>(sums)[r] / static_cast<C>(cut.size)};
        RowValues<C>(results).set(r, reduce_row<SumOf, C>(rows.size(), f, read(r)));
      }
    });
  });
}

void rms_norm_dot(const Block& dot, const Block& dy, const Block& x, const Block& weight) {
  if (cuda::kWithCuda && cuda::on_cuda(dot)) return cuda::rms_norm_dot(dot, dy, x, weight);
  const Rows in = last_rows(x), upper = last_rows(dy);
  check_rows("rms_norm_dot", in, upper);
  const Rows dots = Rows::values("rms_norm_dot", dot, in);
  visit_compute_floating("rms_norm_dot", x.dtype, [&](auto type) {
    using C = typename decltype(type)::type;
    const int64_t n = in.size();
    const std::vector<C> weights = norm_vector<C>("norm: weight", weight, n, C(1));
    parallel_for(in.count(), grain_of(n), [&](int64_t begin, int64_t end) {
      RowReader<C> read(in, end), read_upper(upper, end);
      for (int64_t r = begin; r < end; ++r) {
        const C value =
            reduce_row<SumOf, C>(n, ProductOfThree<C>{}, read_upper(r), weights.data(), read(r));
        RowValues<C>(dots).set(r, value);
      }
    });
  });
}

void layer_norm_sums(const Block& sum, const Block& dot, const Block& dy, const Block& x,
                     const Block& weight, double eps, const CutRows& cut) {
  if (cuda::kWithCuda && cuda::on_cuda(x)) {
    return cuda::layer_norm_sums(sum, dot, dy, x, weight, eps, cut);
  }
  const Rows in = last_rows(x), upper = last_rows(dy);
  check_rows("layer_norm_sums", in, upper);
  const Rows sums = sum.data ? Rows::values("layer_norm_sums", sum, in) : in;
  const Rows dots = dot.data ? Rows::values("layer_norm_sums", dot, in) : in;
  visit_compute_floating("layer_norm_sums", x.dtype, [&](auto type) {
    using C = typename decltype(type)::type;
    const int64_t n = in.size();
    const std::vector<C> weights = norm_vector<C>("norm: weight", weight, n, C(1));
    const NormRows norm{true, eps, &cut};
    const NormStatistics<C> statistics(norm, in);
    parallel_for(in.count(), grain_of(n), [&](int64_t begin, int64_t end) {
      RowReader<C> read(in, end), read_upper(upper, end);
      for (int64_t r = begin; r < end; ++r) {
        const C *v = read(r), *g = read_upper(r), *w = weights.data();
        const NormRow<C> row = statistics.of(v, r);
        if (sum.data) RowValues<C>(sums).set(r, reduce_row<SumOf, C>(n, ProductOfTwo<C>{}, g, w));
        if (!dot.data) continue;
        RowValues<C>(dots).set(r, reduce_row<SumOf, C>(n, NormDot<C>{row.mean, row.rstd}, g, w, v));
      }
    });
  });
}

}  // namespace weft
