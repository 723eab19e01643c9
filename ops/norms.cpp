// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/norm/norm.h"

#include "ops/promotion.h"
#include "ops/rows.h"
#include "weft/extend/op.h"
#include "weft/ops/networks.h"

namespace weft {

static int64_t row_size(const Call& c) { return c.in_shape(0).back(); }

/// Statistics of rows of which this rank holds a part: the first `count` stages.
static WholeRows cut_rows(const Call& c, int count) {
  WholeRows cut{.size = row_size(c), .sums = {}};
  for (int i = 0; i < count; ++i) cut.sums[i] = c.stage(i);
  return cut;
}

/// dx has the dtype of x, the gradients of weight and bias have that of the weight.
static DType norm_gradient_dtype(const Attributes&, std::span<const DType> dtypes, int result) {
  return dtypes[result == 0 ? 1 : 2];
}

/// Returns a stage that sums over a rank's part of each row.
static Stage row_sum_stage(std::function<void(const Call&)> run) {
  return {.result = "...", .reduce = ReduceOp::sum, .run = std::move(run)};
}

/// Stage 0: the sum over a rank's part of each row of operand `operand`.
static Stage reduction_stage(Reduction reduction, int operand) {
  return row_sum_stage(
      [=](const Call& c) { reduce(reduction, c.stage(0), c.in(operand), {last_dim(c)}); });
}

/// Stage 1, from the sums: the squares of the differences from the mean.
static Stage centered_stage(int operand) {
  return row_sum_stage(
      [=](const Call& c) { centered_squares(c.stage(1), c.in(operand), cut_rows(c, 1)); });
}

// operands of the gradients: dy, x, weight

static const Op rms_norm_backward_op = register_op({
    .name = "rms_norm_backward",
    .rule = "... d, ... d, d -> ... d, d",
    .dtype = norm_gradient_dtype,
    .forward =
        [](const Call& c) {
          const WholeRows cut = cut_rows(c, c.staged() ? 2 : 0);
          rms_norm_backward(&c.out(0), &c.out(1), c.in(0), c.in(1), c.in(2), c.value(0),
                            c.staged() ? &cut : nullptr, c.accumulate(1));
        },
    .staged_over = {"d"},
    .stages = {reduction_stage(Reduction::sum_squares, 1), row_sum_stage([](const Call& c) {
                 rms_norm_dot(c.stage(1), c.in(0), c.in(1), c.in(2));
               })},
    .accumulates = {1},
    .samples = {{.shapes = {{5, 7}, {5, 7}, {7}}, .attributes = {.values = {1e-5}}},
                {.shapes = {{2, 5, 3}, {2, 5, 3}, {3}}, .attributes = {.values = {1e-2}}}},
});

static const Op rms_norm_op = register_op({
    .name = "rms_norm",
    .rule = "... d, d -> ... d",
    .forward =
        [](const Call& c) {
          const WholeRows cut = cut_rows(c, c.staged() ? 1 : 0);
          rms_norm(c.out(), c.in(0), c.in(1), c.value(0), c.staged() ? &cut : nullptr);
        },
    .backward =
        [](const Grad& g) {
          g.give_all({0, 1}, rms_norm_backward_op, {g.grad(), g.in(0), g.in(1)}, g.attributes());
        },
    .staged_over = {"d"},
    .stages = {reduction_stage(Reduction::sum_squares, 0)},
    .samples = {{.shapes = {{5, 7}, {7}}, .attributes = {.values = {1e-5}}},
                {.shapes = {{2, 5, 3}, {3}}, .attributes = {.values = {1e-2}}}},
});

static const Op layer_norm_backward_op = register_op({
    .name = "layer_norm_backward",
    .rule = "... d, ... d, d -> ... d, d, d",
    .dtype = norm_gradient_dtype,
    .forward =
        [](const Call& c) {
          const WholeRows cut = cut_rows(c, c.staged() ? 4 : 0);
          layer_norm_backward(&c.out(0), &c.out(1), &c.out(2), c.in(0), c.in(1), c.in(2),
                              c.value(0), c.staged() ? &cut : nullptr,
                              c.accumulate(1) && c.accumulate(2));
        },
    .staged_over = {"d"},
    .stages = {reduction_stage(Reduction::sum, 1), centered_stage(1),
               row_sum_stage([](const Call& c) {
                 layer_norm_sums(c.stage(2), MemoryBlock(), c.in(0), c.in(1), c.in(2), c.value(0),
                                 cut_rows(c, 2));
               }),
               row_sum_stage([](const Call& c) {
                 layer_norm_sums(MemoryBlock(), c.stage(3), c.in(0), c.in(1), c.in(2), c.value(0),
                                 cut_rows(c, 2));
               })},
    .samples = {{.shapes = {{5, 7}, {5, 7}, {7}}, .attributes = {.values = {1e-5}}},
                {.shapes = {{2, 5, 3}, {2, 5, 3}, {3}}, .attributes = {.values = {1e-2}}}},
});

static const Op layer_norm_op = register_op({
    .name = "layer_norm",
    .rule = "... d, d, d -> ... d",
    .forward =
        [](const Call& c) {
          const WholeRows cut = cut_rows(c, c.staged() ? 2 : 0);
          layer_norm(c.out(), c.in(0), c.in(1), c.in(2), c.value(0), c.staged() ? &cut : nullptr);
        },
    .backward =
        [](const Grad& g) {
          g.give_all({0, 1, 2}, layer_norm_backward_op, {g.grad(), g.in(0), g.in(1)},
                     g.attributes());
        },
    .staged_over = {"d"},
    .stages = {reduction_stage(Reduction::sum, 0), centered_stage(0)},
    .saves_in = std::vector<int>{0, 1},
    .samples = {{.shapes = {{5, 7}, {7}, {7}}, .attributes = {.values = {1e-5}}},
                {.shapes = {{2, 5, 3}, {3}, {3}}, .attributes = {.values = {1e-2}}}},
});

/// `given`, or without it equal numbers for the last dim of `x`.
static Tensor given_or(const Tensor& given, double value, const Tensor& x) {
  if (given || !x || x.ndim() == 0) return given;
  return full({x.shape().back()}, value, options_next_to(x, x.dtype()));
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  return rms_norm_op({x, given_or(weight, 1, x)}, {.values = {eps}});
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  return layer_norm_op({x, given_or(weight, 1, x), given_or(bias, 0, x)}, {.values = {eps}});
}

}  // namespace weft
