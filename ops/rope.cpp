// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/rope/rope.h"

#include "src/kernels/copy/dense.h"
#include "weft/error.h"
#include "weft/extend/op.h"
#include "weft/ops/networks.h"

namespace weft {

/// values: theta, the position of the whole's first element, 1 for the inverse rotation.
static const Op rope_op = register_op({
    .name = "rope",
    .rule = "b s h [d] -> b s h [d]",
    .linear = {{0}},
    .forward =
        [](const Call& c) {
          const int64_t first = static_cast<int64_t>(c.value(1)) + c.in_box(0).offset[1];
          rope(c.out(), DenseBlock::of_rows(c.in(0)), 1,
               {.theta = c.value(0), .offset = first, .inverse = c.value(2) != 0});
        },
    .backward =
        [](const Grad& g) {
          Attributes back = g.attributes();
          back.values[2] = 1 - back.values[2];
          g.give(0, rope_op, {g.grad()}, back);
        },
    .saves_in = std::vector<int>{},
    .samples = {{.shapes = {{2, 5, 3, 4}}, .attributes = {.values = {10000, 0, 0}}},
                {.shapes = {{1, 7, 5, 2}}, .attributes = {.values = {500, 3, 1}}}},
});

Tensor rope(const Tensor& x, double theta, int64_t position) {
  if (!x) fail("rope: no tensor");
  if (x.ndim() != 4 || x.size(3) % 2 != 0) {
    fail("rope: x ", x.shape(), " is not [batch, sequence, heads, an even size]");
  }
  if (!(theta > 0)) fail("rope: theta ", theta, " is not positive");
  return rope_op({x}, {.values = {theta, static_cast<double>(position), 0}});
}

}  // namespace weft
