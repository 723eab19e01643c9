// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/embedding/embedding.h"

#include "ops/take.h"
#include "src/kernels/copy/dense.h"
#include "src/kernels/take/take.h"
#include "weft/error.h"
#include "weft/extend/op.h"
#include "weft/ops/networks.h"
#include "weft/ops/shapes.h"

namespace weft {

static Tensor rows_of(const Tensor& weight, const Tensor& ids);

/// The gradient of the weight: adds up the rows of the result's gradient by id. The last operand
/// has no values: its layout determines the rows that each rank makes.
static const Op embedding_backward_op = register_op({
    .name = "embedding_backward",
    .rule = "... d, ..., v -> v d",
    .linear = {{0}},
    .forward =
        [](const Call& c) {
          scatter_add_rows(c.out(), DenseBlock::of(c.in(0)), c.in(1), c.out_box().offset[0],
                           c.accumulate());
        },
    .backward = [](const Grad& g) { g.give(0, rows_of(g.grad(), g.in(1))); },
    .saves_in = std::vector<int>{1},
    .accumulates = {0},
    .samples =
        {{.shapes = {{5, 3}, {5}, {7}}, .dtypes = {f32, i64, u8}, .low = 0, .high = 7},
         {.shapes = {{2, 5, 7}, {2, 5}, {3}}, .dtypes = {f32, i32, u8}, .low = 0, .high = 3}},
});

static void check_ids(const Call& c) {
  const int64_t rows = c.in_shape(0)[0];
  auto outside = find_outside(c.in(1), 0, rows);
  if (!outside) return;
  fail("embedding: id is ", *outside, ", expected one below ", rows, ", the rows of the weight ",
       c.in_shape(0));
}

/// Ids of rows that are on other ranks give zeros: with a sharded vocabulary a Partial(sum).
static const Op embedding_op = register_op({
    .name = "embedding",
    .rule = "v d, ... -> ... d",
    .linear = {{0}},
    .forward =
        [](const Call& c) {
          check_ids(c);
          gather_rows(c.out(), DenseBlock::of_rows(c.in(0)), c.in(1), c.in_box(0).offset[0]);
        },
    .backward =
        [](const Grad& g) {
          if (!g.wants(0)) return;
          const int64_t rows = g.in_shape(0)[0];
          const Tensor places = places_along({rows}, 0, g.in_sharding(0), g.grad().device());
          g.give(0, embedding_backward_op, {g.grad(), g.in(1), places});
        },
    .saves_in = std::vector<int>{1},
    .samples = {{.shapes = {{7, 3}, {5}}, .dtypes = {f32, i64}, .low = 0, .high = 7},
                {.shapes = {{3, 7}, {2, 5}}, .dtypes = {f32, i32}, .low = 0, .high = 3}},
});

static Tensor rows_of(const Tensor& weight, const Tensor& ids) {
  return embedding_op({weight, ids});
}

/// The same for rows that are on other ranks along an axis that cuts the ids too: ranks exchange
/// the rows.
static const Op embedding_rows_op = register_op({
    .name = "embedding_rows",
    .rule = "~v d, ... -> ... d",
    .linear = {{0}},
    .forward =
        [](const Call& c) {
          check_ids(c);
          gather_rows(c.out(), DenseBlock::of_rows(c.in(0)), c.in(1));
        },
    .backward =
        [](const Grad& g) {
          const Tensor ids = g.in(1);
          const Tensor places = places_along(g.in_shape(0), 0, g.in_sharding(0), g.grad().device());
          g.give(0, add_slices(reshape(g.grad(), {ids.numel(), g.in_shape(0)[1]}),
                               reshape(ids, {ids.numel()}), 0, places));
        },
    .by_index = ByIndex{.from_end = false},
    .saves_in = std::vector<int>{1},
    .samples = {{.shapes = {{7, 3}, {5}}, .dtypes = {f32, i64}, .low = 0, .high = 7},
                {.shapes = {{3, 7}, {2, 5}}, .dtypes = {f32, i32}, .low = 0, .high = 3}},
});

/// True when an axis cuts the rows of the weight, and the ids lie on it otherwise than whole.
static bool are_cut_together(const Tensor& weight, const Tensor& ids) {
  if (!weight.is_sharded() || !ids.is_sharded()) return false;
  const Sharding rows = weight.sharding(), at = ids.sharding();
  if (!(rows.mesh() == at.mesh())) return false;
  for (const int axis : rows.axes_cutting(0)) {
    if (rows.mesh().axis_size(axis) > 1 && at[axis].is_shard()) return true;
  }
  return false;
}

Tensor embedding(const Tensor& weight, const Tensor& ids) {
  if (!weight || !ids) fail("embedding: no tensor is given, expected one");
  const Tensor rows = as_indices("embedding", "ids", ids);
  return are_cut_together(weight, rows) ? embedding_rows_op({weight, rows}) : rows_of(weight, rows);
}

}  // namespace weft
