// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/scan.h"

#include <optional>

#include "src/kernels/reducers.h"
#include "src/kernels/rows.h"
#include "src/parallel.h"

namespace weft {

template <class C>
static void scan_row(int64_t n, C* out, const C* in, C sum, bool reverse) {
  for (int64_t i = 0; i < n; ++i) {
    const int64_t j = reverse ? n - 1 - i : i;
    sum = SumOf::combine(sum, in[j]);
    out[j] = sum;
  }
}

void cumulative_sum(const Block& out, const Block& in, int dim, bool reverse, const Block* start) {
  const Rows from(in, dim), to(out, dim);
  check_rows("cumulative_sum", from, to);
  std::optional<Rows> starts;
  if (start) starts.emplace(Rows::values("cumulative_sum", *start, from));
  const auto run = [&](auto type) {
    using C = typename decltype(type)::type;
    parallel_for(from.count(), grain_of(from.size()), [&](int64_t begin, int64_t end) {
      RowReader<C> read(from);
      RowWriter<C> write(to);
      for (int64_t r = begin; r < end; ++r) {
        const C first = starts ? RowValues<C>(*starts)[r] : C(0);
        scan_row(from.size(), write.begin(r), read(r), first, reverse);
        write.end();
      }
    });
  };
  is_floating(in.dtype) ? run(Type<double>{}) : run(Type<int64_t>{});
}

}  // namespace weft
