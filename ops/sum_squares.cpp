// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/reduce.h"
#include "weft/op.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/reductions.h"

namespace weft {

static Dims all_dims_of(const Block& block) {
  Dims dims;
  for (int d = 0; d < block.shape.ndim(); ++d) dims.push_back(d);
  return dims;
}

static const Op sum_squares_op = list({
    .name = "sum_squares",
    .rule = "... -> .",
    .dtype = [](const Attributes&, std::span<const DType> operands,
                int) { return operands[0] == f64 ? f64 : f32; },
    .forward =
        [](const Call& c) {
          reduce(Reduction::sum_squares, c.out(), c.in(0), all_dims_of(c.in(0)));
        },
    .backward = [](const Grad& g) { g.give(0, mul(g.in(0), mul(g.grad(), 2.0))); },
    .samples = {{{{5, 7}}}, {{{3, 5, 7}}}, {{{2}}}},
});

Tensor sum_squares(const Tensor& a) { return sum_squares_op({a}); }

}  // namespace weft
