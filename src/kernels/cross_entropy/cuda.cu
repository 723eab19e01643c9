// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/cross_entropy/cuda.h"

#include "src/kernels/reduce/cuda.h"
#include "src/kernels/softmax/cuda_rows.h"
#include "weft/storage.h"

namespace weft::cuda {

namespace {

/// Returns element j of row r, 0 where the row has none.
template <class C>
WEFT_DEVICE C picked_from(const RowSide& x, int64_t size, int64_t r, int64_t j) {
  if (j < 0 || j >= size) return C(0);
  return load_element<C>(x.data, x.dtype, x.at(r, j));
}

/// One thread per row.
template <class C>
struct PickKernel {
  int64_t count, size, offset;
  RowSide picked, logits, ids;

  WEFT_DEVICE void operator()(const Lane& lane) const {
    for (int64_t r = lane.index; r < count; r += lane.count) {
      set_value(picked, r, picked_from<C>(logits, size, r, value_of<int64_t>(ids, r) - offset));
    }
  }
};

struct CrossEntropyOfRows {
  RowSide logits, ids, loss;
  int64_t ignored;
  RowWork work{};

  template <class Line, class Team>
  WEFT_DEVICE void run(const Team& team) const {
    using C = typename Line::C;
    for (int64_t r = team.team(); r < work.count; r += team.teams()) {
      const int64_t id = value_of<int64_t>(ids, r);
      C value = C(0);
      if (id != ignored) {
        HeldLine<Line> in(logits, r, nullptr);
        const SoftmaxRow<C> row = softmax_row_of(team, work.size / Line::kN, in);
        value = (row.max - picked_from<C>(logits, work.size, r, id)) + log(row.sum);
      }
      if (team.thread() == 0) set_value(loss, r, value);
    }
  }
};

/// factor * (exp(x - max) - 1 where x is of the row's class); 0 in ignored rows.
struct CrossEntropyBackward {
  RowSide dlogits, dloss, logits, ids, max, sum;
  int64_t offset, ignored;
  RowWork work{};

  template <class Line, class Team>
  WEFT_DEVICE void run(const Team& team) const {
    using C = typename Line::C;
    const int64_t chunks = work.size / Line::kN;
    for (int64_t r = team.team(); r < work.count; r += team.teams()) {
      const int64_t id = value_of<int64_t>(ids, r);
      const C factor = value_of<C>(dloss, r);
      const Line out(dlogits, r);
      if (id == ignored) {
        for (int64_t c = team.thread(); c < chunks; c += team.threads()) out.write(c, {});
        continue;
      }
      HeldLine<Line> in(logits, r, work.template held<Line>(team, 0));
      const SoftmaxRow<C> row = statistics<C>(team, chunks, in, r);
      const ScaledExp<C> f{row.max, factor / row.sum};
      for (int64_t c = team.thread(); c < chunks; c += team.threads()) {
        auto values = map_chunk(f, in.read(c));
        const int64_t first = offset + c * Line::kN;
        for (int i = 0; i < Line::kN; ++i) {
          if (first + i == id) values.element[i] = values.element[i] - factor;
        }
        out.write(c, values);
      }
    }
  }

  template <class C, class Team, class Line>
  WEFT_DEVICE SoftmaxRow<C> statistics(const Team& team, int64_t chunks, Line& in,
                                       int64_t r) const {
    if (!max.data) return softmax_row_of(team, chunks, in);
    return {finite_or_zero(value_of<C>(max, r)), sum.data ? value_of<C>(sum, r) : C(1)};
  }
};

struct MarkKept {
  int64_t count, ignored;
  RowSide ids;
  uint8_t* kept;

  WEFT_DEVICE void operator()(const Lane& lane) const {
    for (int64_t i = lane.index; i < count; i += lane.count) {
      kept[i] = value_of<int64_t>(ids, i) != ignored ? 1 : 0;
    }
  }
};

}  // namespace

static Rows logit_rows(const Block& logits) { return Rows(logits, logits.shape.ndim() - 1); }
static RowSide logit_side(const Block& logits) { return RowSide(logits, logits.shape.ndim() - 1); }

void pick(const Block& picked, const Block& logits, const Block& ids, int64_t offset) {
  const Rows rows = logit_rows(logits);
  visit_compute_floating("pick", logits.dtype, [&](auto type) {
    using C = typename decltype(type)::type;
    const PickKernel<C> kernel{rows.count(),
                               rows.size(),
                               offset,
                               value_side("pick", picked, rows),
                               logit_side(logits),
                               value_side("pick", ids, rows)};
    launch(kernel, kernel.count, current_stream(logits.device));
  });
}

void cross_entropy(const Block& loss, const Block& logits, const Block& ids, int64_t ignored) {
  constexpr const char* kWhat = "cross_entropy";
  const Rows rows = logit_rows(logits);
  const CrossEntropyOfRows body{logit_side(logits), value_side(kWhat, ids, rows),
                                value_side(kWhat, loss, rows), ignored};
  launch_rows(body,
              plan_rows(kWhat, logits.device, rows.count(), rows.size(), {&body.logits}, {}, 0));
}

void cross_entropy_backward(const Block& dlogits, const Block& dloss, const Block& logits,
                            const Block& ids, int64_t offset, int64_t ignored, const Block* max,
                            const Block* sum) {
  constexpr const char* kWhat = "cross_entropy_backward";
  const Rows rows = logit_rows(logits);
  check_rows(kWhat, rows, logit_rows(dlogits));
  const CrossEntropyBackward body{logit_side(dlogits),
                                  value_side(kWhat, dloss, rows),
                                  logit_side(logits),
                                  value_side(kWhat, ids, rows),
                                  max ? value_side(kWhat, *max, rows) : RowSide{},
                                  sum ? value_side(kWhat, *sum, rows) : RowSide{},
                                  offset,
                                  ignored};
  launch_rows(body, plan_rows(kWhat, logits.device, rows.count(), rows.size(),
                              {&body.logits, &body.dlogits}, {}, max ? 0 : 1));
}

void count_kept(const Block& out, const Block& ids, int64_t ignored) {
  const int64_t count = ids.numel();
  const Ref<Storage> memory = Storage::allocate(static_cast<size_t>(count), ids.device);
  const MarkKept kernel{count, ignored, RowSide(ids, ids.shape.ndim()),
                        static_cast<uint8_t*>(memory->data())};
  launch(kernel, count, current_stream(ids.device));
  const Block kept = dense_block(memory->data(), DType::u8, {count}, ids.device);
  cuda::reduce(Reduction::sum, dense_block(out.data, out.dtype, {1}, out.device), kept, {0}, 1,
               false);
}

}  // namespace weft::cuda
