// SPDX-License-Identifier: Apache-2.0
#include "ops/rows.h"
#include "src/kernels/copy.h"
#include "weft/ops/reductions.h"

namespace weft {

/// Over a cut dim: the largest of all, then the least index of the whole at which it stands.
static Stage first_index_stage() {
  return {.result = "...",
          .reduce = ReduceOp::min,
          .run =
              [](const Call& c) {
                int dim = last_dim(c);
                index_of(c.stage(1), c.in(0), c.stage(0), dim, c.in_box(0).offset[dim]);
              },
          .index = true};
}

static const Op argmax_op = list({
    .name = "argmax",
    .rule = "... v -> ...",
    .dtype = [](const Attributes&, std::span<const DType>, int) { return i64; },
    .forward =
        [](const Call& c) {
          if (c.staged()) return copy(c.out(), c.stage(1));
          arg_reduce(c.out(), c.in(0), last_dim(c), true);
        },
    .staged_over = {"v"},
    .stages = {row_max_stage(), first_index_stage()},
    .differentiable = false,
    .samples = {{{{5, 7}}}, {{{2, 5, 3}}}, {.shapes = {{5, 7}}, .dtypes = {i32}}},
});

Tensor argmax(const Tensor& a, int dim, bool keepdims) {
  if (!a) fail("argmax: no tensor");
  int at = normalized_dim("argmax", dim, a.ndim());
  if (a.size(at) == 0) fail("argmax: dim ", at, " of ", a.shape(), " has no elements");
  Tensor index = argmax_op({with_last(a, at)});
  return keepdims ? unsqueeze(index, at) : index;
}

}  // namespace weft
