// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/random/random.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/op.h"
#include "weft/ops/networks.h"

namespace weft {

/// values: p; random: seed and stream. Whether an element is dropped depends only on its position
/// in the whole tensor, so it is equal on all ranks of a Partial, and in the gradient.
static const Op dropout_op = register_op({
    .name = "dropout",
    .rule = "... -> ...",
    .linear = {{0}},
    .forward =
        [](const Call& c) {
          const auto& [seed, stream] = c.attributes().random;
          dropout(c.out(), c.in(0), c.out_box(), c.out_shape(), {seed, stream}, c.value(0));
        },
    .backward = [](const Grad& g) { g.give(0, dropout_op, {g.grad()}, g.attributes()); },
    .saves_in = std::vector<int>{},
    .samples = {{.shapes = {{5, 7}}, .attributes = {.values = {0.4}, .random = {1, 2}}},
                {.shapes = {{2, 5, 3}}, .attributes = {.values = {0.5}, .random = {7, 0}}}},
});

Tensor dropout(const Tensor& x, double p) {
  if (!x) fail("dropout: no tensor is given, expected one");
  if (!(p >= 0 && p < 1)) fail("dropout: probability is ", p, ", expected one in [0, 1)");
  if (!is_floating(x.dtype())) fail("dropout: dtype is ", x.dtype(), ", expected a floating one");
  if (p == 0) return x;
  RandomState& random = Context::current().random;
  return dropout_op({x}, {.values = {p}, .random = {random.seed, random.stream++}});
}

}  // namespace weft
