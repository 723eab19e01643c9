// SPDX-License-Identifier: Apache-2.0
#include "ops/along_dim.h"
#include "ops/engine/tensor_body.h"
#include "ops/promotion.h"
#include "ops/scan.h"
#include "ops/sorting.h"
#include "src/kernels/scan/scan.h"
#include "weft/ops/factories.h"
#include "weft/ops/selection.h"
#include "weft/ops/shapes.h"

namespace weft {

/// Writes the extreme of this rank's part, or its index, to its entry of stage `stage`.
static void write_extreme(const Call& c, bool greatest, int stage) {
  const int dim = along_dim(c);
  const MemoryBlock& in = c.in(0);
  if (in.shape[dim] == 0) return fill(c.stage(stage), stage == 0 ? 0 : -1);
  const DenseMemory values(in.shape, in.dtype, in.device), indices(in.shape, i64, in.device);
  cumulative_extreme(values.block, indices.block, in,
                     {.dim = dim, .greatest = greatest, .offset = c.in_box(0).offset[dim]});
  const DenseMemory& found = stage == 0 ? values : indices;
  copy(slice_at(c.stage(stage), 0, 0), slice_at(found.block, dim, in.shape[dim] - 1));
}

static Stage extreme_stage(bool greatest, int stage) {
  return {.result = "-n",
          .run = [=](const Call& c) { write_extreme(c, greatest, stage); },
          .index = stage == 1,
          .gathered = true};
}

static void extreme_forward(const Call& c, bool greatest) {
  const int dim = along_dim(c);
  ExtremeScan scan{.dim = dim, .greatest = greatest, .offset = c.in_box(0).offset[dim]};
  if (!c.staged()) return cumulative_extreme(c.out(0), c.out(1), c.in(0), scan);
  const MemoryBlock& totals = c.stage(0);
  const DenseMemory values(totals.shape, totals.dtype, totals.device),
      indices(totals.shape, i64, totals.device);
  cumulative_extreme(values.block, indices.block, totals,
                     {.dim = 0, .greatest = greatest, .numbers = &c.stage(1)});
  const int64_t part = c.stage_box(0).offset[0];
  if (part == 0) return cumulative_extreme(c.out(0), c.out(1), c.in(0), scan);
  const MemoryBlock start = slice_at(values.block, 0, part - 1),
                    start_index = slice_at(indices.block, 0, part - 1);
  scan.start = &start;
  scan.start_index = &start_index;
  cumulative_extreme(c.out(0), c.out(1), c.in(0), scan);
}

/// Results: the extremes and their indices. Traffic: 16 bytes for each row and other part.
static Op cumulative_extreme_op(const char* name, bool greatest) {
  return register_op({
      .name = name,
      .rule_of = scan_rule<1, 2>,
      .structure = one_dim(),
      .dtype = value_and_index,
      .forward = [=](const Call& c) { extreme_forward(c, greatest); },
      .backward =
          [](const Grad& g) {
            g.give(0, place_along_dim(g.grad(), g.out(1), static_cast<int>(g.attribute(0))));
          },
      .staged_over = {"n"},
      .stages = {extreme_stage(greatest, 0), extreme_stage(greatest, 1)},
      .saves_in = std::vector<int>{},
      .saves_out = {1},
      .samples = {{.shapes = {{5, 7}}, .attributes = {.structure = {1}}},
                  {.shapes = {{5, 3, 2}}, .attributes = {.structure = {0}}},
                  {.shapes = {{5, 7}}, .attributes = {.structure = {0}}, .dtypes = {i32}}},
  });
}

static const Op cummax_op = cumulative_extreme_op("cummax", true);
static const Op cummin_op = cumulative_extreme_op("cummin", false);

static ValuesAndIndices extremes_along(const Op& op, const Tensor& a, int dim) {
  const char* what = op.spec().name.c_str();
  check_tensor(what, a);
  if (a.ndim() == 0) {
    const ValuesAndIndices one = extremes_along(op, reshape(a, {1}), dim);
    return {reshape(one.values, {}), reshape(one.indices, {})};
  }
  const Tensors found = op.call({ordered_as_i64(a)}, {.structure = {checked_dim(what, a, dim)}});
  return {ordered_back(found[0], a.dtype()), found[1]};
}

ValuesAndIndices cummax(const Tensor& a, int dim) { return extremes_along(cummax_op, a, dim); }
ValuesAndIndices cummin(const Tensor& a, int dim) { return extremes_along(cummin_op, a, dim); }

}  // namespace weft
