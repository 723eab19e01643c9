// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/cross_entropy/cross_entropy.h"
#include "ops/take.h"

#include "ops/promotion.h"
#include "ops/rows.h"
#include "src/kernels/embedding/embedding.h"
#include "src/kernels/map/map.h"
#include "weft/ops/networks.h"
#include "weft/ops/reductions.h"

namespace weft {

namespace {

struct RowLoss {
  template <class T>
  WEFT_FN T operator()(T lse, T picked, T target) const {
    return target == T(kIgnoredTarget) ? T(0) : lse - picked;
  }
};

}  // namespace

/// Returns the first class that this rank holds.
static int64_t first_class(const Call& c) { return c.in_box(0).offset[last_dim(c)]; }

static void check_targets(const Call& c) {
  const int64_t classes = c.in_shape(0).back();
  auto outside = find_outside(c.in(1), 0, classes, kIgnoredTarget);
  if (!outside) return;
  fail("cross_entropy: target is ", *outside, ", expected one below ", classes,
       ", the classes of logits ", c.in_shape(0), ", or ", kIgnoredTarget);
}

/// operands: logits, targets, logsumexp of the rows, gradient of the rows' losses.
static const Op cross_entropy_backward_op = register_op({
    .name = "cross_entropy_backward",
    .rule = "... v, ..., ..., ... -> ... v",
    .forward =
        [](const Call& c) {
          cross_entropy_backward(c.out(), c.in(3), c.in(0), c.in(1), first_class(c), kIgnoredTarget,
                                 &c.in(2));
        },
    .samples =
        {{.shapes = {{5, 7}, {5}, {5}, {5}}, .dtypes = {f32, i64, f32, f32}, .low = 0, .high = 7},
         {.shapes = {{2, 5, 3}, {2, 5}, {2, 5}, {2, 5}},
          .dtypes = {f32, i32, f32, f32},
          .low = 0,
          .high = 3}},
});

/// results: the rows' losses and, for the gradient, their logsumexp. With a sharded vocabulary,
/// ranks reduce three numbers per row.
static const Op cross_entropy_op = register_op({
    .name = "cross_entropy",
    .rule = "... v, ... -> ..., ...",
    .dtype = [](const Attributes&, std::span<const DType> dtypes,
                int) { return row_dtype(dtypes); },
    .forward =
        [](const Call& c) {
          check_targets(c);
          if (c.staged()) {
            logsumexp(c.out(1), c.stage(0), c.stage(1));
          } else {
            logsumexp(c.out(1), c.in(0), last_dim(c));
            pick(c.out(), c.in(0), c.in(1), 0);
          }
          map_floating(RowLoss{}, c.out(), c.out(1), c.staged() ? c.stage(2) : c.out(), c.in(1));
        },
    .backward =
        [](const Grad& g) {
          g.give(0, cross_entropy_backward_op, {g.in(0), g.in(1), g.out(1), g.grad()});
        },
    .staged_over = {"v"},
    .stages = {row_max_stage(),
               row_sum_exp_stage(),
               {.result = "...",
                .reduce = ReduceOp::sum,
                .run = [](const Call& c) { pick(c.stage(2), c.in(0), c.in(1), first_class(c)); }}},
    .saves_out = {1},
    .samples = {{.shapes = {{5, 7}, {5}}, .dtypes = {f32, i64}, .low = 0, .high = 7},
                {.shapes = {{2, 5, 3}, {2, 5}}, .dtypes = {f32, i32}, .low = 0, .high = 3}},
});

/// Number of targets that count: a Partial over a sharded batch, so the mean reduces one number.
static const Op kept_targets_op = register_op({
    .name = "kept_targets",
    .rule = "... -> .",
    .dtype = [](const Attributes&, std::span<const DType>, int) { return f32; },
    .forward = [](const Call& c) { count_kept(c.out(), c.in(0), kIgnoredTarget); },
    .differentiable = false,
    .samples = {{.shapes = {{5, 7}}, .dtypes = {i64}, .low = 0, .high = 7}},
});

Tensor cross_entropy_rows(const Tensor& logits, const Tensor& targets) {
  Tensor x = as_floating("cross_entropy", logits);
  if (!targets) fail("cross_entropy: no targets are given, expected one for each row");
  const Tensor classes = as_indices("cross_entropy", "targets", targets);
  Shape rows = x.shape();
  if (rows.ndim() > 0) rows.erase(rows.ndim() - 1);
  if (x.ndim() == 0 || !(targets.shape() == rows)) {
    fail("cross_entropy: targets are ", targets.shape(), ", expected one for each row of logits ",
         x.shape());
  }
  return cross_entropy_op({x, classes});
}

Tensor cross_entropy(const Tensor& logits, const Tensor& targets) {
  Tensor total = sum(cross_entropy_rows(logits, targets));
  return div(total, as_dtype(kept_targets_op({as_indices("cross_entropy", "targets", targets)}),
                             total.dtype()));
}

}  // namespace weft
