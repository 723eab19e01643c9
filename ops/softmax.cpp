// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/softmax/softmax.h"

#include "ops/promotion.h"
#include "ops/rows.h"
#include "weft/ops/networks.h"
#include "weft/ops/reductions.h"

namespace weft {

static const Op softmax_backward_op = register_op({
    .name = "softmax_backward",
    .rule = "... v, ... v -> ... v",
    .forward =
        [](const Call& c) {
          softmax_backward(c.out(), c.in(0), c.in(1), last_dim(c),
                           c.staged() ? &c.stage(0) : nullptr);
        },
    .staged_over = {"v"},
    .stages = {{.result = "...",
                .reduce = ReduceOp::sum,
                .run = [](const Call& c) { row_dot(c.stage(0), c.in(0), c.in(1), last_dim(c)); }}},
    .samples = {{{{5, 7}, {5, 7}}}, {{{2, 5, 3}, {2, 5, 3}}}},
});

static const Op softmax_op = register_op({
    .name = "softmax",
    .rule = "... v -> ... v",
    .forward =
        [](const Call& c) {
          if (c.staged()) return softmax(c.out(), c.in(0), last_dim(c), &c.stage(0), &c.stage(1));
          softmax(c.out(), c.in(0), last_dim(c));
        },
    .backward =
        [](const Grad& g) {
          g.give(0, softmax_backward_op, {g.grad(), g.out()});
        },
    .staged_over = {"v"},
    .stages = {row_max_stage(), row_sum_exp_stage()},
    .saves_in = std::vector<int>{},
    .saves_out = {0},
    .samples = {{{{5, 7}}}, {{{2, 5, 3}}}},
});

static const Op log_softmax_backward_op = register_op({
    .name = "log_softmax_backward",
    .rule = "... v, ... v -> ... v",
    .forward =
        [](const Call& c) {
          log_softmax_backward(c.out(), c.in(0), c.in(1), last_dim(c),
                               c.staged() ? &c.stage(0) : nullptr);
        },
    .staged_over = {"v"},
    .stages = {{.result = "...",
                .reduce = ReduceOp::sum,
                .run =
                    [](const Call& c) {
                      reduce(Reduction::sum, c.stage(0), c.in(0), {last_dim(c)});
                    }}},
    .samples = {{{{5, 7}, {5, 7}}}, {{{2, 5, 3}, {2, 5, 3}}}},
});

static const Op log_softmax_op = register_op({
    .name = "log_softmax",
    .rule = "... v -> ... v",
    .forward =
        [](const Call& c) {
          int dim = last_dim(c);
          if (c.staged()) return log_softmax(c.out(), c.in(0), dim, &c.stage(0), &c.stage(1));
          log_softmax(c.out(), c.in(0), dim);
        },
    .backward =
        [](const Grad& g) {
          g.give(0, log_softmax_backward_op, {g.grad(), g.out()});
        },
    .staged_over = {"v"},
    .stages = {row_max_stage(), row_sum_exp_stage()},
    .saves_in = std::vector<int>{},
    .saves_out = {0},
    .samples = {{{{5, 7}}}, {{{2, 5, 3}}}},
});

static const Op logsumexp_backward_op = register_op({
    .name = "logsumexp_backward",
    .rule = "..., ... v, ... -> ... v",
    .dtype = [](const Attributes&, std::span<const DType> dtypes, int) { return dtypes[1]; },
    .forward =
        [](const Call& c) {
          logsumexp_backward(c.out(), c.in(0), c.in(1), c.in(2), c.in(1).shape.ndim() - 1);
        },
    .samples = {{{{5}, {5, 7}, {5}}}, {{{2, 5}, {2, 5, 3}, {2, 5}}}},
});

static const Op logsumexp_op = register_op({
    .name = "logsumexp",
    .rule = "... v -> ...",
    .forward =
        [](const Call& c) {
          if (c.staged()) return logsumexp(c.out(), c.stage(0), c.stage(1));
          logsumexp(c.out(), c.in(0), last_dim(c));
        },
    .backward =
        [](const Grad& g) {
          g.give(0, logsumexp_backward_op, {g.grad(), g.in(0), g.out()});
        },
    .staged_over = {"v"},
    .stages = {row_max_stage(), row_sum_exp_stage()},
    .saves_out = {0},
    .samples = {{{{5, 7}}}, {{{2, 5, 3}}}},
});

Tensor softmax(const Tensor& a) { return softmax_op({as_floating("softmax", a)}); }

Tensor log_softmax(const Tensor& a) { return log_softmax_op({as_floating("log_softmax", a)}); }

Tensor logsumexp(const Tensor& a, int dim, bool keepdims) {
  Tensor x = as_floating("logsumexp", a);
  int at = normalized_dim("logsumexp", dim, x.ndim());
  Tensor result = logsumexp_op({with_last(x, at)});
  return keepdims ? unsqueeze(result, at) : result;
}

}  // namespace weft
