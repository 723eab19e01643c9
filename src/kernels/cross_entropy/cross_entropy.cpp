// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/cross_entropy/cross_entropy.h"

#include "src/kernels/softmax/softmax_rows.h"

namespace weft {
namespace {

/// dloss * (exp(x - lse) - 1 where x is of the row's class); 0 in ignored rows.
struct CrossEntropyBackwardRows {
  Rows dlogits, dloss, logits, ids, lse;
  int64_t offset, ignored;

  template <class Walk> WEFT_FN void operator()(const Walk& walk) const {
    using C = typename Walk::C;
    auto read = walk.reader(logits);
    auto&& out = walk.writer(dlogits);
    for (int64_t r = walk.begin(); r < walk.end(); r += walk.step()) {
      const int64_t id = value_of<int64_t>(ids, r);
      if (id == ignored) {
        walk.clear(out, r);
        continue;
      }
      auto in = read(r);
      const C of_row = value_of<C>(lse, r);
      const SoftmaxRow<C> row{finite_or_zero(of_row), C(1) + (of_row - of_row)};
      write_softmax(walk, out, r, in, &row, value_of<C>(dloss, r), id - offset);
    }
  }
};

/// The picked logit of a row, which needs one element of it.
struct PickedLogit {
  Rows picked, logits, ids;
  int64_t offset;

  template <class Walk> WEFT_FN void operator()(const Walk& walk) const {
    using C = typename Walk::C;
    for (int64_t r = walk.begin(); r < walk.end(); r += walk.step()) {
      const int64_t j = value_of<int64_t>(ids, r) - offset;
      walk.set(picked, r, j >= 0 && j < logits.size() ? value_of<C>(logits, r, j) : C(0));
    }
  }
};

}  // namespace

void pick(const MemoryBlock& picked, const MemoryBlock& logits, const MemoryBlock& ids,
          int64_t offset) {
  const Rows rows = last_rows(logits);
  run_row_values("pick", logits.device,
                 PickedLogit{Rows::values("pick", picked, rows), rows,
                             Rows::values("pick", ids, rows), offset},
                 rows);
}

void cross_entropy_backward(const MemoryBlock& dlogits, const MemoryBlock& dloss,
                            const MemoryBlock& logits, const MemoryBlock& ids,
                            const MemoryBlock& lse, int64_t offset, int64_t ignored) {
  constexpr const char* kWhat = "cross_entropy_backward";
  const Rows rows = last_rows(logits);
  const CrossEntropyBackwardRows kernel{last_rows(dlogits),
                                        Rows::values(kWhat, dloss, rows),
                                        rows,
                                        Rows::values(kWhat, ids, rows),
                                        Rows::values(kWhat, lse, rows),
                                        offset,
                                        ignored};
  run_rows(kWhat, logits.device, kernel, {.rows = {&kernel.logits, &kernel.dlogits}});
}

}  // namespace weft
