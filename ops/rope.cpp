// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/rope/rope.h"

#include "src/kernels/copy/dense.h"
#include "weft/error.h"
#include "weft/extend/op.h"
#include "weft/ops/networks.h"

namespace weft {

/// values: Rope, with the position of the whole's first element.
static const Op rope_op = register_op({
    .name = "rope",
    .rule = "b s h [d] -> b s h [d]",
    .linear = {{0}},
    .forward =
        [](const Call& c) {
          Rope rotation = unpack<Rope>(c.attributes().values);
          rotation.offset += c.in_box(0).offset[1];
          rope(c.out(), DenseBlock::of_rows(c.in(0)), 1, rotation);
        },
    .backward =
        [](const Grad& g) {
          Rope back = unpack<Rope>(g.attributes().values);
          back.inverse = !back.inverse;
          g.give(0, rope_op, {g.grad()}, {.values = pack_values(back)});
        },
    .saves_in = std::vector<int>{},
    .samples = {{.shapes = {{2, 5, 3, 4}}, .attributes = {.values = {10000, 0, 0}}},
                {.shapes = {{1, 7, 5, 2}}, .attributes = {.values = {500, 3, 1}}}},
});

Tensor rope(const Tensor& x, double theta, int64_t position) {
  if (!x) fail("rope: no tensor is given, expected one");
  if (x.ndim() != 4 || x.size(3) % 2 != 0) {
    fail("rope: x is ", x.shape(), ", expected [batch, sequence, heads, an even size]");
  }
  if (!(theta > 0)) fail("rope: theta is ", theta, ", expected a number above 0");
  return rope_op({x}, {.values = pack_values(Rope{.theta = theta, .offset = position})});
}

}  // namespace weft
