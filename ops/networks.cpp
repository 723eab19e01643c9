// SPDX-License-Identifier: Apache-2.0
#include "ops/definition.h"
#include "ops/rows.h"
#include "ops/take.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/embedding/embedding.h"
#include "src/kernels/norm/norm.h"
#include "src/kernels/softmax/softmax.h"
#include "src/kernels/take/take.h"
#include "weft/ops.h"
#include "weft/ops/embedding.h"

namespace weft {

/// The norm of a call, of cut rows if there are `count` stages with their statistics.
static Norm norm_of(const Call& c, bool centered, int count) {
  Norm norm{.centered = centered, .eps = c.value(0)};
  if (count > 0) norm.whole_size = c.in_shape(0).back();
  for (int i = 0; i < count; ++i) norm.sums[static_cast<size_t>(i)] = c.stage(i);
  return norm;
}

/// dx has the dtype of x, the gradients of weight and bias have that of the weight.
static DType norm_gradient_dtype(const Attributes&, std::span<const DType> dtypes, int result) {
  return dtypes[result == 0 ? 1 : 2];
}

/// Stage 0: the sum over a rank's part of each row of operand `operand`.
static Stage reduction_stage(Reduction reduction, int operand) {
  return row_sum_stage(
      [=](const Call& c) { reduce(reduction, c.stage(0), c.in(operand), {last_dim(c)}); });
}

/// Stage 1, from the sums: the squares of the differences from the mean.
static Stage centered_stage(int operand) {
  return row_sum_stage(
      [=](const Call& c) { centered_squares(norm_of(c, true, 1), c.stage(1), c.in(operand)); });
}

using Operands = std::span<const Tensor>;

/// operands: x, weight; value 0: eps.
static Tensors rms_norm_definition(Operands given, const Attributes& attributes) {
  const Tensor x = widened(given[0]);
  const Tensor scale = rsqrt(add(mean(square(x), {-1}, true), attributes.values[0]));
  return {as_dtype(mul(mul(x, scale), widened(given[1])), given[0].dtype())};
}

/// operands: x, weight, bias.
static Tensors layer_norm_definition(Operands given, const Attributes& attributes) {
  const Tensor x = widened(given[0]), centered = sub(x, mean(x, {-1}, true));
  const Tensor scale = rsqrt(add(mean(square(centered), {-1}, true), attributes.values[0]));
  const Tensor y = add(mul(mul(centered, scale), widened(given[1])), widened(given[2]));
  return {as_dtype(y, given[0].dtype())};
}

/// The gradient does not depend on the bias.
static Tensors layer_norm_gradients(Operands given, const Attributes& attributes) {
  const Tensor bias = zeros_like(given[2]);
  return gradients_by(layer_norm_definition, std::array{given[1], given[2], bias}, attributes,
                      {given[0]}, {0, 1, 2});
}

// operands of the gradients: dy, x, weight
// Missed layouts of norms, softmax and their gradients: all are linear in dy or the weight, yet a
// Partial one is reduced first. Otherwise every rank would compute whole rows instead of its own,
// and a gradient with several results would end with several tensors to reduce.

static const Op rms_norm_backward_op = register_op({
    .name = "rms_norm_backward",
    .rule = "... d, ... d, d -> ... d, d",
    .dtype = norm_gradient_dtype,
    .forward =
        [](const Call& c) {
          norm_backward(norm_of(c, false, c.staged() ? 2 : 0), c.out(0), c.out(1), nullptr, c.in(0),
                        c.in(1), c.in(2), c.accumulate(1));
        },
    .definition = gradient_definition(rms_norm_definition, 2),
    .staged_over = {"d"},
    .stages = {reduction_stage(Reduction::sum_squares, 1), row_sum_stage([](const Call& c) {
                 norm_sums(norm_of(c, false, 0), {}, c.stage(1), c.in(0), c.in(1), c.in(2));
               })},
    .accumulates = {1},
    .samples = {{.shapes = {{5, 7}, {5, 7}, {7}}, .attributes = {.values = {1e-5}}},
                {.shapes = {{2, 5, 3}, {2, 5, 3}, {3}}, .attributes = {.values = {1e-2}}}},
});

static const Op rms_norm_op = register_op({
    .name = "rms_norm",
    .rule = "... d, d -> ... d",
    .forward =
        [](const Call& c) {
          normalize(norm_of(c, false, c.staged() ? 1 : 0), c.out(), c.in(0), c.in(1));
        },
    .backward =
        [](const Grad& g) {
          g.give_all({0, 1}, rms_norm_backward_op, {g.grad(), g.in(0), g.in(1)}, g.attributes());
        },
    .definition = rms_norm_definition,
    .staged_over = {"d"},
    .stages = {reduction_stage(Reduction::sum_squares, 0)},
    .samples = {{.shapes = {{5, 7}, {7}}, .attributes = {.values = {1e-5}}},
                {.shapes = {{2, 5, 3}, {3}}, .attributes = {.values = {1e-2}}}},
});

static const Op layer_norm_backward_op = register_op({
    .name = "layer_norm_backward",
    .rule = "... d, ... d, d -> ... d, d, d",
    .dtype = norm_gradient_dtype,
    .forward =
        [](const Call& c) {
          norm_backward(norm_of(c, true, c.staged() ? 4 : 0), c.out(0), c.out(1), &c.out(2),
                        c.in(0), c.in(1), c.in(2), false);
        },
    .definition = layer_norm_gradients,
    .staged_over = {"d"},
    .stages = {reduction_stage(Reduction::sum, 1), centered_stage(1),
               row_sum_stage([](const Call& c) {
                 norm_sums(norm_of(c, true, 2), c.stage(2), {}, c.in(0), c.in(1), c.in(2));
               }),
               row_sum_stage([](const Call& c) {
                 norm_sums(norm_of(c, true, 2), {}, c.stage(3), c.in(0), c.in(1), c.in(2));
               })},
    .samples = {{.shapes = {{5, 7}, {5, 7}, {7}}, .attributes = {.values = {1e-5}}},
                {.shapes = {{2, 5, 3}, {2, 5, 3}, {3}}, .attributes = {.values = {1e-2}}}},
});

static const Op layer_norm_op = register_op({
    .name = "layer_norm",
    .rule = "... d, d, d -> ... d",
    .forward =
        [](const Call& c) {
          normalize(norm_of(c, true, c.staged() ? 2 : 0), c.out(), c.in(0), c.in(1), c.in(2));
        },
    .backward =
        [](const Grad& g) {
          g.give_all({0, 1, 2}, layer_norm_backward_op, {g.grad(), g.in(0), g.in(1)},
                     g.attributes());
        },
    .definition = layer_norm_definition,
    .staged_over = {"d"},
    .stages = {reduction_stage(Reduction::sum, 0), centered_stage(0)},
    .saves_in = std::vector<int>{0, 1},
    .samples = {{.shapes = {{5, 7}, {7}, {7}}, .attributes = {.values = {1e-5}}},
                {.shapes = {{2, 5, 3}, {3}, {3}}, .attributes = {.values = {1e-2}}}},
});

/// `given`, or without it equal numbers for the last dim of `x`.
static Tensor given_or(const Tensor& given, double value, const Tensor& x) {
  if (given || !x || x.ndim() == 0) return given;
  return full({x.shape().back()}, value, options_next_to(x, x.dtype()));
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  return rms_norm_op({x, given_or(weight, 1, x)}, {.values = {eps}});
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  return layer_norm_op({x, given_or(weight, 1, x), given_or(bias, 0, x)}, {.values = {eps}});
}

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
          scatter_add_rows(c.out(), DenseBlock::of(c.in(0)), c.in(1), c.out_box().offset[0],
                           c.accumulate());
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
