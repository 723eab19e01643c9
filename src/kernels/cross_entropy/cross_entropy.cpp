// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/cross_entropy/cross_entropy.h"

#include "src/kernels/softmax/softmax_rows.h"

namespace weft {
namespace {

/// Returns element j of row r, 0 where the row has none.
template <class C> WEFT_FN C picked_from(const Rows& rows, int64_t r, int64_t j) {
  return j >= 0 && j < rows.size() ? value_of<C>(rows, r, j) : C(0);
}

/// Loss of whole rows.
struct CrossEntropyRows {
  Rows logits, ids, loss;
  int64_t ignored;

  template <class Walk> WEFT_FN void operator()(const Walk& walk) const {
    using C = typename Walk::C;
    auto read = walk.reader(logits);
    for (int64_t r = walk.begin(); r < walk.end(); r += walk.step()) {
      const int64_t id = value_of<int64_t>(ids, r);
      C value = C(0);
      if (id != ignored) {
        auto in = read(r);
        const SoftmaxRow<C> row = softmax_row(walk, in);
        value = (row.max - picked_from<C>(logits, r, id)) + log(row.sum);
      }
      walk.set(loss, r, value);
    }
  }
};

/// factor * (exp(x - max) - 1 where x is of the row's class); 0 in ignored rows.
struct CrossEntropyBackwardRows {
  Rows dlogits, dloss, logits, ids, max, sum;
  int64_t offset, ignored;

  template <class Walk> WEFT_FN void operator()(const Walk& walk) const {
    using C = typename Walk::C;
    auto read = walk.held_reader(logits, 0);
    auto&& out = walk.writer(dlogits);
    for (int64_t r = walk.begin(); r < walk.end(); r += walk.step()) {
      const int64_t id = value_of<int64_t>(ids, r);
      if (id == ignored) {
        walk.clear(out, r);
        continue;
      }
      auto in = read(r);
      SoftmaxRow<C> row{};
      if (max.data()) row.max = finite_or_zero(value_of<C>(max, r));
      row.sum = sum.data() ? value_of<C>(sum, r) : C(1);
      write_softmax(walk, out, r, in, max.data() ? &row : nullptr, value_of<C>(dloss, r),
                    id - offset);
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
      walk.set(picked, r, picked_from<C>(logits, r, j));
    }
  }
};

struct LossFromStatistics {
  template <class T> WEFT_FN T operator()(T kept, T max, T sum, T picked) const {
    return kept != T(0) ? (finite_or_zero(max) - picked) + log(sum) : T(0);
  }
};

struct IsNot {
  int64_t ignored;
  template <class T> WEFT_FN T operator()(T id) const { return id != T(ignored) ? T(1) : T(0); }
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

void cross_entropy(const MemoryBlock& loss, const MemoryBlock& logits, const MemoryBlock& ids,
                   int64_t ignored) {
  constexpr const char* kWhat = "cross_entropy";
  const Rows rows = last_rows(logits);
  const CrossEntropyRows kernel{rows, Rows::values(kWhat, ids, rows),
                                Rows::values(kWhat, loss, rows), ignored};
  run_rows(kWhat, logits.device, kernel, {.rows = {&kernel.logits}});
}

void cross_entropy(const MemoryBlock& loss, const MemoryBlock& ids, const MemoryBlock& max,
                   const MemoryBlock& sum, const MemoryBlock& picked, int64_t ignored) {
  // One pass marks the rows that count: ids are integers, and the loss is not computed in integers.
  const MemoryBlock kept = loss;
  map(IsNot{ignored}, kept, ids);
  map_floating(LossFromStatistics{}, loss, kept, max, sum, picked);
}

void cross_entropy_backward(const MemoryBlock& dlogits, const MemoryBlock& dloss,
                            const MemoryBlock& logits, const MemoryBlock& ids, int64_t offset,
                            int64_t ignored, const MemoryBlock* max, const MemoryBlock* sum) {
  constexpr const char* kWhat = "cross_entropy_backward";
  const Rows rows = last_rows(logits);
  const CrossEntropyBackwardRows kernel{last_rows(dlogits),
                                        Rows::values(kWhat, dloss, rows),
                                        rows,
                                        Rows::values(kWhat, ids, rows),
                                        max ? Rows::values(kWhat, *max, rows) : Rows(),
                                        sum ? Rows::values(kWhat, *sum, rows) : Rows(),
                                        offset,
                                        ignored};
  run_rows(kWhat, logits.device, kernel,
           {.rows = {&kernel.logits, &kernel.dlogits}, .held = max ? 0 : 1});
}

}  // namespace weft
