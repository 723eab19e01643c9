// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/softmax/softmax.h"

#include "ops/promotion.h"
#include "ops/rows.h"
#include "weft/ops/networks.h"
#include "weft/ops/reductions.h"

namespace weft {

using SoftmaxKernel = void (*)(const MemoryBlock&, const MemoryBlock&, int, const MemoryBlock*,
                               const MemoryBlock*);
using SoftmaxGradientKernel = void (*)(const MemoryBlock&, const MemoryBlock&, const MemoryBlock&,
                                       int, const MemoryBlock*);

/// operands: the gradient and softmax's result; `statistic` of a part of a row is summed over
/// ranks.
static Op register_softmax_backward(const char* name, SoftmaxGradientKernel kernel,
                                    void (*statistic)(const Call&)) {
  return register_op({
      .name = name,
      .rule = "... v, ... v -> ... v",
      .forward =
          [kernel](const Call& c) {
            kernel(c.out(), c.in(0), c.in(1), last_dim(c), c.staged() ? &c.stage(0) : nullptr);
          },
      .staged_over = {"v"},
      .stages = {{.result = "...", .reduce = ReduceOp::sum, .run = statistic}},
      .samples = {{{{5, 7}, {5, 7}}}, {{{2, 5, 3}, {2, 5, 3}}}},
  });
}

static Op register_softmax(const char* name, SoftmaxKernel kernel, const Op& backward) {
  return register_op({
      .name = name,
      .rule = "... v -> ... v",
      .forward =
          [kernel](const Call& c) {
            kernel(c.out(), c.in(0), last_dim(c), c.staged() ? &c.stage(0) : nullptr,
                   c.staged() ? &c.stage(1) : nullptr);
          },
      .backward =
          [backward](const Grad& g) {
            g.give(0, backward, {g.grad(), g.out()});
          },
      .staged_over = {"v"},
      .stages = {row_extreme_stage(), row_sum_exp_stage()},
      .saves_in = std::vector<int>{},
      .saves_out = {0},
      .samples = {{{{5, 7}}}, {{{2, 5, 3}}}},
  });
}

static const Op softmax_op = register_softmax(
    "softmax", softmax,
    register_softmax_backward("softmax_backward", softmax_backward, [](const Call& c) {
      row_dot(c.stage(0), c.in(0), c.in(1), last_dim(c));
    }));

static const Op log_softmax_op = register_softmax(
    "log_softmax", log_softmax,
    register_softmax_backward("log_softmax_backward", log_softmax_backward, [](const Call& c) {
      reduce(Reduction::sum, c.stage(0), c.in(0), {last_dim(c)});
    }));

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
    .stages = {row_extreme_stage(), row_sum_exp_stage()},
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
