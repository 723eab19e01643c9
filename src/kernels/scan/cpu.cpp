// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/scan/scan.h"

#include <optional>

#include "src/base/parallel.h"
#include "src/kernels/math/reducers.h"
#include "src/kernels/rows/rows.h"
#include "src/kernels/scan/extreme.h"

namespace weft::host {

/// Not inlined: its total then went through an integer register each step, four times as slow.
template <class R, class C>
[[gnu::noinline]] static void scan_row(int64_t n, C* out, const C* in, C total, bool reverse) {
  for (int64_t i = 0; i < n; ++i) {
    const int64_t j = reverse ? n - 1 - i : i;
    total = R::combine(total, in[j]);
    out[j] = total;
  }
}

template <class R, class C>
static void scan_as(const Rows& from, const Rows& to, const std::optional<Rows>& starts,
                    bool reverse) {
  parallel_for(from.count(), grain_of(from.size()), [&](int64_t begin, int64_t end) {
    RowReader<C> read(from, end);
    RowWriter<C> write(to, end);
    for (int64_t r = begin; r < end; ++r) {
      const C first = starts ? RowValues<C>(*starts)[r] : R::template identity<C>();
      scan_row<R>(from.size(), write.begin(r), read(r), first, reverse);
      write.end();
    }
  });
}

template <class R>
static void scan(const char* what, const MemoryBlock& out, const MemoryBlock& in, int dim,
                 bool reverse, const MemoryBlock* start) {
  const Rows from(in, dim), to(out, dim);
  check_rows(what, from, to);
  std::optional<Rows> starts;
  if (start) starts.emplace(Rows::values(what, *start, from));
  is_floating(in.dtype) ? scan_as<R, double>(from, to, starts, reverse)
                        : scan_as<R, int64_t>(from, to, starts, reverse);
}

void cumulative_sum(const MemoryBlock& out, const MemoryBlock& in, int dim, bool reverse,
                    const MemoryBlock* start) {
  scan<SumOf>("cumulative_sum", out, in, dim, reverse, start);
}

void cumulative_product(const MemoryBlock& out, const MemoryBlock& in, int dim, bool reverse,
                        const MemoryBlock* start) {
  scan<ProductOf>("cumulative_product", out, in, dim, reverse, start);
}

void cumulative_logsumexp(const MemoryBlock& out, const MemoryBlock& in, int dim, bool reverse,
                          const MemoryBlock* start) {
  const Rows from(in, dim), to(out, dim);
  check_rows("cumulative_logsumexp", from, to);
  std::optional<Rows> starts;
  if (start) starts.emplace(Rows::values("cumulative_logsumexp", *start, from));
  scan_as<LogAddExpOf, double>(from, to, starts, reverse);
}

/// One row of cumulative_extreme, of elements numbered by `number`.
template <class C, class Number>
static void extreme_row(int64_t n, C* values, int64_t* indices, const C* in, bool greatest,
                        Extreme<C> found, const Number& number) {
  for (int64_t i = 0; i < n; ++i) {
    found = found.with({in[i], number(i)}, greatest);
    values[i] = found.value;
    indices[i] = found.index;
  }
}

void cumulative_extreme(const MemoryBlock& values, const MemoryBlock& indices,
                        const MemoryBlock& in, const ExtremeScan& scan) {
  const ExtremeRows rows(values, indices, in, scan);
  visit_compute(in.dtype, [&](auto type) {
    using C = typename decltype(type)::type;
    parallel_for(rows.in.count(), grain_of(rows.in.size()), [&](int64_t begin, int64_t end) {
      RowReader<C> read(rows.in, end);
      RowReader<int64_t> read_number(rows.numbers, end);
      RowWriter<C> write(rows.values, end);
      RowWriter<int64_t> write_index(rows.indices, end);
      for (int64_t r = begin; r < end; ++r) {
        Extreme<C> start{C(0), -1};
        if (rows.start.data()) {
          start = {RowValues<C>(rows.start)[r], RowValues<int64_t>(rows.start_index)[r]};
        }
        const int64_t* numbers = rows.numbers.data() ? read_number(r) : nullptr;
        C* to = write.begin(r);
        int64_t* index = write_index.begin(r);
        if (numbers) {
          extreme_row(rows.in.size(), to, index, read(r), scan.greatest, start,
                      [&](int64_t i) { return numbers[i]; });
        } else {
          extreme_row(rows.in.size(), to, index, read(r), scan.greatest, start,
                      [&](int64_t i) { return i + scan.offset; });
        }
        write.end();
        write_index.end();
      }
    });
  });
}

/// From the end, out[i] = dy[i] + x[i + 1] * out[i + 1]; then times the product of x before i.
static void cumulative_gradient_row(int64_t n, double* out, const double* dy, const double* x,
                                    double before, double after) {
  for (int64_t i = n - 1; i >= 0; --i) {
    out[i] = dy[i] + after;
    after = x[i] * out[i];
  }
  for (int64_t i = 0; i < n; ++i) {
    out[i] *= before;
    before *= x[i];
  }
}

void cumulative_product_gradient(const MemoryBlock& out, const MemoryBlock& dy,
                                 const MemoryBlock& x, int dim, const MemoryBlock* before,
                                 const MemoryBlock* behind) {
  const Rows gradients(dy, dim), from(x, dim), to(out, dim);
  const Rows first = before ? Rows::values("cumulative_product_gradient", *before, from) : Rows();
  const Rows last = behind ? Rows::values("cumulative_product_gradient", *behind, from) : Rows();
  check_rows("cumulative_product_gradient", from, to);
  check_rows("cumulative_product_gradient", from, gradients);
  parallel_for(from.count(), grain_of(from.size()), [&](int64_t begin, int64_t end) {
    RowReader<double> read_gradient(gradients, end), read(from, end);
    RowWriter<double> write(to, end);
    for (int64_t r = begin; r < end; ++r) {
      cumulative_gradient_row(from.size(), write.begin(r), read_gradient(r), read(r),
                              before ? RowValues<double>(first)[r] : 1,
                              behind ? RowValues<double>(last)[r] : 0);
      write.end();
    }
  });
}

void product_gradient(const MemoryBlock& out, const MemoryBlock& dy, const MemoryBlock& x,
                      int dim) {
  const Rows from(x, dim), to(out, dim);
  check_rows("product_gradient", from, to);
  const Rows gradients = Rows::values("product_gradient", dy, from);
  parallel_for(from.count(), grain_of(from.size()), [&](int64_t begin, int64_t end) {
    RowReader<double> read(from, end);
    RowWriter<double> write(to, end);
    for (int64_t r = begin; r < end; ++r) {
      const double* factors = read(r);
      double* others = write.begin(r);
      double before = RowValues<double>(gradients)[r], after = 1;
      for (int64_t i = 0; i < from.size(); before *= factors[i++]) others[i] = before;
      for (int64_t i = from.size() - 1; i >= 0; after *= factors[i--]) others[i] *= after;
      write.end();
    }
  });
}

}  // namespace weft::host
