// SPDX-License-Identifier: Apache-2.0
#include "ops/definition.h"
#include "ops/halves.h"
#include "ops/rows.h"
#include "ops/take.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/embedding/embedding.h"
#include "src/kernels/softmax/softmax.h"
#include "src/kernels/take/take.h"
#include "weft/ops.h"
#include "weft/ops/embedding.h"

namespace weft {

using Operands = std::span<const Tensor>;

static Tensors softmax_definition(Operands x, const Attributes&) {
  return {exp(sub(x[0], logsumexp(x[0], -1, true)))};
}
static Tensors log_softmax_definition(Operands x, const Attributes&) {
  return {sub(x[0], logsumexp(x[0], -1, true))};
}
// operands of the gradients: dy, result
static Tensors softmax_gradient(Operands x, const Attributes&) {
  return {mul(x[1], sub(x[0], sum(mul(x[0], x[1]), {-1}, true)))};
}
static Tensors log_softmax_gradient(Operands x, const Attributes&) {
  return {sub(x[0], mul(exp(x[1]), sum(x[0], {-1}, true)))};
}

/// operands: the gradient and softmax's result; `statistic` of a part of a row is summed over
/// ranks.
static Op register_softmax_backward(const char* name, bool logarithm,
                                    void (*statistic)(const Call&)) {
  return register_op({
      .name = name,
      .rule = "... v, ... v -> ... v",
      .forward =
          [logarithm](const Call& c) {
            softmax_backward(c.out(), c.in(0), c.in(1), last_dim(c), logarithm,
                             c.staged() ? &c.stage(0) : nullptr);
          },
      .definition = logarithm ? log_softmax_gradient : softmax_gradient,
      .staged_over = {"v"},
      .stages = {row_sum_stage(statistic)},
      .samples = {{{{5, 7}, {5, 7}}}, {{{2, 5, 3}, {2, 5, 3}}}},
  });
}

static Op register_softmax(const char* name, bool logarithm, const Op& backward) {
  return register_op({
      .name = name,
      .rule = "... v -> ... v",
      .forward =
          [logarithm](const Call& c) {
            softmax(c.out(), c.in(0), last_dim(c), logarithm, c.staged() ? &c.stage(0) : nullptr,
                    c.staged() ? &c.stage(1) : nullptr);
          },
      .backward =
          [backward](const Grad& g) {
            g.give(0, backward, {g.grad(), g.out()});
          },
      .definition = logarithm ? log_softmax_definition : softmax_definition,
      .staged_over = {"v"},
      .stages = {row_extreme_stage(), row_sum_exp_stage()},
      .saves_in = std::vector<int>{},
      .saves_out = {0},
      .samples = {{{{5, 7}}}, {{{2, 5, 3}}}},
  });
}

static const Op softmax_op = register_softmax(
    "softmax", false, register_softmax_backward("softmax_backward", false, [](const Call& c) {
      row_dot(c.stage(0), c.in(0), c.in(1), last_dim(c));
    }));

static const Op log_softmax_op = register_softmax(
    "log_softmax", true, register_softmax_backward("log_softmax_backward", true, [](const Call& c) {
      reduce(Reduction::sum, c.stage(0), c.in(0), {last_dim(c)});
    }));

static Tensors logsumexp_definition(Operands given, const Attributes&) {
  const Tensor x = widened(given[0]);
  const Tensor most = max(x, {-1}, true).detach();
  const Tensor finite = masked_fill(most, logical_not(isfinite(most)), 0);
  const Tensor total = log(sum(exp(sub(x, finite)), {-1}, true));
  return {as_dtype(squeeze(add(total, finite), -1), given[0].dtype())};
}
// operands of the gradient: dy, x, result
static Tensors logsumexp_gradient(Operands given, const Attributes&) {
  const Tensor p = exp(sub(widened(given[1]), unsqueeze(widened(given[2]), -1)));
  return {as_dtype(mul(p, unsqueeze(widened(given[0]), -1)), given[1].dtype())};
}

static const Op logsumexp_backward_op = register_op({
    .name = "logsumexp_backward",
    .rule = "..., ... v, ... -> ... v",
    .dtype = [](const Attributes&, std::span<const DType> dtypes, int) { return dtypes[1]; },
    .forward =
        [](const Call& c) {
          logsumexp_backward(c.out(), c.in(0), c.in(1), c.in(2), c.in(1).shape.ndim() - 1);
        },
    .definition = logsumexp_gradient,
    .samples = {{{{5}, {5, 7}, {5}}}, {{{2, 5}, {2, 5, 3}, {2, 5}}}},
});

static const Op logsumexp_op = register_op({
    .name = "logsumexp",
    .rule = "... v -> ...",
    .forward =
        [](const Call& c) {
          if (c.staged()) return logsumexp(c.out(), c.stage(0), c.stage(1));
          logsumexp(c.out(), c.in(0), last_dim(c));
        },
    .backward =
        [](const Grad& g) {
          g.give(0, logsumexp_backward_op, {g.grad(), g.in(0), g.out()});
        },
    .definition = logsumexp_definition,
    .staged_over = {"v"},
    .stages = {row_extreme_stage(), row_sum_exp_stage()},
    .saves_out = {0},
    .samples = {{{{5, 7}}}, {{{2, 5, 3}}}},
});

Tensor softmax(const Tensor& a) { return softmax_op({as_floating("softmax", a)}); }
Tensor log_softmax(const Tensor& a) { return log_softmax_op({as_floating("log_softmax", a)}); }

Tensor logsumexp(const Tensor& a, int dim, bool keepdims) {
  Tensor x = as_floating("logsumexp", a);
  int at = normalized_dim("logsumexp", dim, x.ndim());
  Tensor result = logsumexp_op({with_last(x, at)});
  return keepdims ? unsqueeze(result, at) : result;
}

/// The gradient of the weight: adds up the rows of the result's gradient by id. The last operand
/// has no values: its layout determines the rows that each rank makes.
/// Missed layouts: the last operand is read for its layout only.
static const Op embedding_backward_op = register_op({
    .name = "embedding_backward",
    .rule = "... d, ..., v -> v d",
    .linear = {{0}},
    .positions = {{"v"}},
    .forward =
        [](const Call& c) {
          const int dim = std::max(0, c.in(1).shape.ndim() - 1);
          const int64_t half = dim == 0 ? 0 : half_of(c, 1, dim);
          const auto range = [&](int i, int64_t begin, int64_t end) {
            return DenseBlock::of(half == 0 ? c.in(i) : range_of(c.in(i), dim, begin, end));
          };
          add_by_halves(c.out(), c.accumulate(), half, half == 0 ? 0 : c.in(1).shape[dim],
                        [&](int64_t begin, int64_t end, const MemoryBlock& to, bool accumulates) {
                          scatter_add_rows(to, range(0, begin, end), range(1, begin, end),
                                           c.out_box().offset[0], accumulates);
                        });
        },
    .backward = [](const Grad& g) { g.give(0, embedding(g.grad(), g.in(1))); },
    .saves_in = std::vector<int>{1},
    .accumulates = {0},
    .samples =
        {{.shapes = {{5, 3}, {5}, {7}}, .dtypes = {f32, i64, u8}, .low = 0, .high = 7},
         {.shapes = {{2, 5, 7}, {2, 5}, {3}}, .dtypes = {f32, i32, u8}, .low = 0, .high = 3}},
});

static std::string wrong_id(const MemoryBlock& ids, const Shape& weight) {
  const auto outside = find_outside(ids, 0, weight[0]);
  if (!outside) return "";
  return concat("embedding: id is ", *outside, ", expected one below ", weight[0],
                ", the rows of the weight ", weight);
}

/// Value 0 is 1 where the ids were checked before.
static void check_ids(const Call& c) {
  if (c.value(0) != 0) return;
  const std::string mistake = wrong_id(c.in(1), c.in_shape(0));
  if (!mistake.empty()) fail(mistake);
}

/// The gradient of the rows that ids name: 0 where the id is the padding, which value 1 counts from
/// 1 on.
static Tensor gradient_of_rows(const Grad& g) {
  const auto number = static_cast<int64_t>(g.attributes().values[1]);
  if (number == 0) return g.grad();
  return masked_fill(g.grad(), unsqueeze(equal(g.in(1), number - 1), -1), 0);
}

/// Ids of rows that are on other ranks give zeros: with a sharded vocabulary a Partial(sum).
static const Op embedding_op = register_op({
    .name = "embedding",
    .rule = "v d, ... -> ... d",
    .linear = {{0}},
    .positions = {{"v"}},
    .forward =
        [](const Call& c) {
          check_ids(c);
          gather_rows(c.out(), DenseBlock::of_rows(c.in(0)), c.in(1), c.in_box(0).offset[0]);
        },
    .backward =
        [](const Grad& g) {
          if (!g.wants(0)) return;
          const Tensor places =
              places_along({g.in_shape(0)[0]}, 0, g.in_sharding(0), g.grad().device());
          g.give(0, embedding_backward_op, {gradient_of_rows(g), g.in(1), places});
        },
    .samples = {{.shapes = {{7, 3}, {5}}, .dtypes = {f32, i64}, .low = 0, .high = 7},
                {.shapes = {{3, 7}, {2, 5}}, .dtypes = {f32, i32}, .low = 0, .high = 3}},
});

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
          g.give(0, add_slices(reshape(gradient_of_rows(g), {ids.numel(), g.in_shape(0)[1]}),
                               reshape(ids, {ids.numel()}), 0, places));
        },
    .by_index = ByIndex{.from_end = false},
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

Tensor embedding(const Tensor& weight, const Tensor& ids, std::optional<int64_t> padding) {
  if (!weight || !ids) fail("embedding: no tensor is given, expected one");
  const Tensor rows = as_indices("embedding", "ids", ids);
  const bool has_rows = weight.ndim() == 2;  // else the rule fails
  const bool is_checked = has_rows && check_ids_on_all_ranks(rows, [&] {
                            return wrong_id(rows.block(), weight.shape());
                          });
  const bool is_padded = padding && has_rows;
  const int64_t row = is_padded ? padding_row("embedding", *padding, weight.size(0)) + 1 : 0;
  const Op& op = are_cut_together(weight, rows) ? embedding_rows_op : embedding_op;
  return op({weight, rows}, {.values = {is_checked ? 1.0 : 0.0, static_cast<double>(row)}});
}

Tensor embedding(const Tensor& weight, const Tensor& ids) { return embedding(weight, ids, {}); }

}  // namespace weft
