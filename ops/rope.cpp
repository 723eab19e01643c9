// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/rope/rope.h"

#include "ops/promotion.h"
#include "ops/rows.h"
#include "src/kernels/copy/copy.h"
#include "weft/ops.h"
#include "weft/ops/documents.h"

namespace weft {

/// `positions`: the operand that states them, or 0.
static void rotate(const Call& c, const MemoryBlock* frequencies, int positions = 0) {
  Rope rotation = unpack<Rope>(c.attributes().values);
  rotation.offset += c.in_box(0).offset[1];
  const DenseBlock x = DenseBlock::of_rows(c.in(0));
  if (positions == 0) return rope(c.out(), x, 1, rotation, frequencies);
  const DenseBlock dense = DenseBlock::of(c.in(positions));
  const MemoryBlock& given = dense;
  rope(c.out(), x, 1, rotation, frequencies, &given);
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
    .positions = {{"s"}},
    .forward = [](const Call& c) { rotate(c, nullptr); },
    .backward = [](const Grad& g) { g.give(0, rope_op, {g.grad()}, turned_back(g)); },
    .samples = {{.shapes = {{2, 5, 3, 4}}, .attributes = {.values = {10000, 0, 0, 1}}},
                {.shapes = {{1, 7, 5, 2}}, .attributes = {.values = {500, 3, 1, 1}}}},
});

/// The same with the frequencies as operand 1.
/// Missed layouts: one frequency is one element, which the ranks without it need all the same.
static const Op rope_by_frequencies_op = register_op({
    .name = "rope_by_frequencies",
    .rule = "b s h [d], [p] -> b s h [d]",
    .takes = {anything(), {.dtypes = {f32}}},
    .linear = {{0}},
    .positions = {{"s"}},
    .forward = [](const Call& c) { rotate(c, &c.in(1)); },
    .backward =
        [](const Grad& g) {
          g.give(0, rope_by_frequencies_op, {g.grad(), g.in(1)}, turned_back(g));
        },
    .samples = {{.shapes = {{2, 5, 3, 5}, {2}},
                 .attributes = {.values = {1, 0, 0, 1}},
                 .dtypes = {f32, f32}},
                {.shapes = {{1, 7, 5, 2}, {1}},
                 .attributes = {.values = {1, 3, 1, 0.5}},
                 .dtypes = {f32, f32}}},
});

/// rope of tokens at the positions of operand 1.
static const Op rope_at_op = register_op({
    .name = "rope_at",
    .rule = "b s h [d], b s -> b s h [d]",
    .takes = {anything(), {.dtypes = {i64}}},
    .linear = {{0}},
    .positions = {{"s"}},
    .forward = [](const Call& c) { rotate(c, nullptr, 1); },
    .backward =
        [](const Grad& g) {
          g.give(0, rope_at_op, {g.grad(), g.in(1)}, turned_back(g));
        },
    .samples = {{.shapes = {{2, 5, 3, 4}, {2, 5}},
                 .attributes = {.values = {10000, 0, 0, 1}},
                 .dtypes = {f32, i64},
                 .low = 0,
                 .high = 7}},
});

/// The same with the frequencies as operand 2.
static const Op rope_at_by_frequencies_op = register_op({
    .name = "rope_at_by_frequencies",
    .rule = "b s h [d], b s, [p] -> b s h [d]",
    .takes = {anything(), {.dtypes = {i64}}, {.dtypes = {f32}}},
    .linear = {{0}},
    .positions = {{"s"}},
    .forward = [](const Call& c) { rotate(c, &c.in(2), 1); },
    .backward =
        [](const Grad& g) {
          g.give(0, rope_at_by_frequencies_op, {g.grad(), g.in(1), g.in(2)}, turned_back(g));
        },
    .samples = {{.shapes = {{2, 5, 3, 5}, {2, 5}, {2}},
                 .attributes = {.values = {1, 0, 0, 0.5}},
                 .dtypes = {f32, i64, f32},
                 .low = 0,
                 .high = 7}},
});

static void check_rows(const Tensor& x, bool in_pairs) {
  if (!x) fail("rope: no tensor is given, expected one");
  if (x.ndim() == 4 && (!in_pairs || x.size(3) % 2 == 0)) return;
  fail("rope: x is ", x.shape(), ", expected [batch, sequence, heads, ",
       in_pairs ? "an even size]" : "head dim]");
}

static void check_frequencies(const Tensor& x, const Tensor& frequencies) {
  check_rows(x, false);
  if (!frequencies) fail("rope: no frequencies are given, expected a tensor");
  if (frequencies.ndim() != 1 || 2 * frequencies.size(0) > x.size(3)) {
    fail("rope: frequencies are ", frequencies.shape(), ", expected a vector of at most ",
         x.size(3) / 2, ", half the size of a head");
  }
}

static void check_theta(const Tensor& x, double theta) {
  check_rows(x, true);
  if (!(theta > 0)) fail("rope: theta is ", theta, ", expected a number above 0");
}

/// Returns positions [batch, sequence] of x as i64.
static Tensor checked_positions(const Tensor& x, const Tensor& positions) {
  if (!positions) fail("rope: no positions are given, expected a tensor");
  const Shape expected{x.size(0), x.size(1)};
  if (!(positions.shape() == expected) || !is_integer(positions.dtype())) {
    fail("rope: positions are ", positions.dtype(), " ", positions.shape(), ", expected integers ",
         expected, ", one for each token of x ", x.shape());
  }
  return as_dtype(positions, i64);
}

Tensor rope(const Tensor& x, double theta, const Tensor& positions) {
  check_theta(x, theta);
  return rope_at_op({x, checked_positions(x, positions)},
                    {.values = pack_values(Rope{.theta = theta})});
}

Tensor rope(const Tensor& x, const Tensor& frequencies, double scale, const Tensor& positions) {
  check_frequencies(x, frequencies);
  return rope_at_by_frequencies_op({x, checked_positions(x, positions), frequencies},
                                   {.values = pack_values(Rope{.scale = scale})});
}

Tensor rope(const Tensor& x, const Tensor& frequencies, double scale, int64_t position) {
  check_frequencies(x, frequencies);
  return rope_by_frequencies_op({x, frequencies},
                                {.values = pack_values(Rope{.offset = position, .scale = scale})});
}

Tensor rope(const Tensor& x, double theta, int64_t position) {
  check_theta(x, theta);
  return rope_op({x}, {.values = pack_values(Rope{.theta = theta, .offset = position})});
}

Tensor document_positions(const Tensor& segments) {
  if (!segments) fail("document_positions: no tensor is given, expected one");
  if (segments.ndim() != 2 || !is_integer(segments.dtype())) {
    fail("document_positions: segments are ", segments.dtype(), " ", segments.shape(),
         ", expected integers [batch, sequence]");
  }
  const int64_t length = segments.size(1);
  const Tensor ids = as_dtype(segments, i64);
  const Tensor index = mul(ones_like(ids), arange(length, options_next_to(ids, i64)));
  if (length < 2) return index;
  const Tensor later = slice(index, 1, 1, length);
  const Tensor begins = not_equal(slice(ids, 1, 1, length), slice(ids, 1, 0, length - 1));
  const Tensor starts = cat({slice(index, 1, 0, 1), where(begins, later, zeros_like(later))}, 1);
  return sub(index, cummax(starts, 1).values);
}

}  // namespace weft
