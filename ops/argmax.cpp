// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/tensor_body.h"
#include "ops/promotion.h"
#include "ops/rows.h"
#include "src/kernels/copy/copy.h"
#include "weft/ops/reductions.h"

namespace weft {

/// For a sharded dim: the least index, in the whole tensor, at which the overall extreme occurs.
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

static Op arg_reduction(const char* name, bool greatest) {
  return register_op({
      .name = name,
      .rule = "... v -> ...",
      .dtype = [](const Attributes&, std::span<const DType>, int) { return i64; },
      .forward =
          [greatest](const Call& c) {
            if (c.staged()) return copy(c.out(), c.stage(1));
            arg_reduce(c.out(), c.in(0), last_dim(c), greatest);
          },
      .staged_over = {"v"},
      .stages = {row_extreme_stage(greatest), first_index_stage()},
      .differentiable = false,
      .samples = {{{{5, 7}}}, {{{2, 5, 3}}}, {.shapes = {{5, 7}}, .dtypes = {i32}}},
  });
}

static const Op argmax_op = arg_reduction("argmax", true);
static const Op argmin_op = arg_reduction("argmin", false);

static Tensor index_along(const Op& op, const Tensor& a, int dim, bool keepdims) {
  const char* what = op.spec().name.c_str();
  const int at = checked_dim(what, a, dim);
  if (a.size(at) == 0) {
    fail(what, ": size of dim ", at, " of ", a.shape(), " must be at least 1, got 0");
  }
  Tensor index = op({with_last(ordered_as_i64(a), at)});
  return keepdims ? unsqueeze(index, at) : index;
}

Tensor argmax(const Tensor& a, int dim, bool keepdims) {
  return index_along(argmax_op, a, dim, keepdims);
}

Tensor argmin(const Tensor& a, int dim, bool keepdims) {
  return index_along(argmin_op, a, dim, keepdims);
}

}  // namespace weft
