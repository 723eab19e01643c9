// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/rope/rope.h"

#include "src/kernels/copy/dense.h"
#include "weft/error.h"
#include "weft/extend/op.h"
#include "weft/ops/networks.h"

namespace weft {

static void rotate(const Call& c, const MemoryBlock* frequencies) {
  Rope rotation = unpack<Rope>(c.attributes().values);
  rotation.offset += c.in_box(0).offset[1];
  rope(c.out(), DenseBlock::of_rows(c.in(0)), 1, rotation, frequencies);
}

static Attributes turned_back(const Grad& g) {
  Rope back = unpack<Rope>(g.attributes().values);
  back.inverse = !back.inverse;
  return {.values = pack_values(back)};
}

/// values: Rope, with the position of the whole's first element.
static const Op rope_op = register_op({
    .name = "rope",
    .rule = "b s h [d] -> b s h [d]",
    .linear = {{0}},
    .forward = [](const Call& c) { rotate(c, nullptr); },
    .backward = [](const Grad& g) { g.give(0, rope_op, {g.grad()}, turned_back(g)); },
    .saves_in = std::vector<int>{},
    .samples = {{.shapes = {{2, 5, 3, 4}}, .attributes = {.values = {10000, 0, 0, 1}}},
                {.shapes = {{1, 7, 5, 2}}, .attributes = {.values = {500, 3, 1, 1}}}},
});

/// The same with the frequencies as operand 1.
static const Op rope_by_frequencies_op = register_op({
    .name = "rope_by_frequencies",
    .rule = "b s h [d], [p] -> b s h [d]",
    .takes = {anything(), {.dtypes = {f32}}},
    .linear = {{0}},
    .forward = [](const Call& c) { rotate(c, &c.in(1)); },
    .backward =
        [](const Grad& g) {
          g.give(0, rope_by_frequencies_op, {g.grad(), g.in(1)}, turned_back(g));
        },
    .saves_in = std::vector<int>{1},
    .samples = {{.shapes = {{2, 5, 3, 5}, {2}},
                 .attributes = {.values = {1, 0, 0, 1}},
                 .dtypes = {f32, f32}},
                {.shapes = {{1, 7, 5, 2}, {1}},
                 .attributes = {.values = {1, 3, 1, 0.5}},
                 .dtypes = {f32, f32}}},
});

static void check_rows(const Tensor& x, bool in_pairs) {
  if (!x) fail("rope: no tensor is given, expected one");
  if (x.ndim() == 4 && (!in_pairs || x.size(3) % 2 == 0)) return;
  fail("rope: x is ", x.shape(), ", expected [batch, sequence, heads, ",
       in_pairs ? "an even size]" : "head dim]");
}

Tensor rope(const Tensor& x, const Tensor& frequencies, double scale, int64_t position) {
  check_rows(x, false);
  if (!frequencies) fail("rope: no frequencies are given, expected a tensor");
  if (frequencies.ndim() != 1 || 2 * frequencies.size(0) > x.size(3)) {
    fail("rope: frequencies are ", frequencies.shape(), ", expected a vector of at most ",
         x.size(3) / 2, ", half the size of a head");
  }
  return rope_by_frequencies_op({x, frequencies},
                                {.values = pack_values(Rope{.offset = position, .scale = scale})});
}

Tensor rope(const Tensor& x, double theta, int64_t position) {
  check_rows(x, true);
  if (!(theta > 0)) fail("rope: theta is ", theta, ", expected a number above 0");
  return rope_op({x}, {.values = pack_values(Rope{.theta = theta, .offset = position})});
}

}  // namespace weft
