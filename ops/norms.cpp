// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ops/definition.h"
#include "ops/halves.h"
#include "ops/rows.h"
#include "src/kernels/norm/norm.h"
#include "src/kernels/reduce/reduce.h"
#include "weft/ops.h"

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

/// Computes the gradients of a norm: operands dy, x, weight; results dx and the gradients of weight
/// and, of a centered norm, bias, which add the tokens (of the last but one dim) by halves.
static void differentiate_norm(const Call& c, bool centered, int count) {
  const Norm norm = norm_of(c, centered, c.staged() ? count : 0);
  const MemoryBlock* dbias = centered ? &c.out(2) : nullptr;
  const bool accumulate = !centered && c.accumulate(1);
  const int dim = std::max(0, c.in(0).shape.ndim() - 2);
  const int64_t half = dim == 0 || c.staged() ? 0 : half_of(c, 0, dim);
  const bool splits_bias = centered && half > 0;
  const DenseMemory other(splits_bias ? dbias->shape : Shape{0}, c.out(centered ? 2 : 1).dtype,
                          c.out(1).device);
  const int64_t size = dim == 0 ? 0 : c.in(0).shape[dim];
  const auto add = [&](int64_t begin, int64_t end, const MemoryBlock& dweight, bool accumulates) {
    const auto tokens = [&](const MemoryBlock& all) {
      return half == 0 ? all : range_of(all, dim, begin, end);
    };
    norm_backward(norm, tokens(c.out(0)), dweight, begin == 0 || !centered ? dbias : &other.block,
                  tokens(c.in(0)), tokens(c.in(1)), c.in(2), accumulates);
  };
  add_by_halves(c.out(1), accumulate, half, size, add);
  if (splits_bias) weft::accumulate(*dbias, other.block);
}

/// operands: x, weight; value 0: eps.
static Tensors rms_norm_definition(std::span<const Tensor> given, const Attributes& attributes) {
  const Tensor x = widened(given[0]);
  const Tensor scale = rsqrt(add(mean(square(x), {-1}, true), attributes.values[0]));
  return {as_dtype(mul(mul(x, scale), widened(given[1])), given[0].dtype())};
}

/// operands: x, weight, bias.
static Tensors layer_norm_definition(std::span<const Tensor> given, const Attributes& attributes) {
  const Tensor x = widened(given[0]), centered = sub(x, mean(x, {-1}, true));
  const Tensor scale = rsqrt(add(mean(square(centered), {-1}, true), attributes.values[0]));
  const Tensor y = add(mul(mul(centered, scale), widened(given[1])), widened(given[2]));
  return {as_dtype(y, given[0].dtype())};
}

/// The gradient does not depend on the bias.
static Tensors layer_norm_gradients(std::span<const Tensor> given, const Attributes& attributes) {
  const Tensor bias = zeros_like(given[2]);
  return gradients_by(layer_norm_definition, std::array{given[1], given[2], bias}, attributes,
                      {given[0]}, {0, 1, 2});
}

// operands of the gradients: dy, x, weight
// Missed layouts of norms, softmax and their gradients: all are linear in dy or the weight, yet a
// Partial one is reduced first. Otherwise every rank would compute the rows of all ranks,
// and a gradient with several results would end with several tensors to reduce.

static const Op rms_norm_backward_op = register_op({
    .name = "rms_norm_backward",
    .rule = "... d, ... d, d -> ... d, d",
    .dtype = norm_gradient_dtype,
    .forward = [](const Call& c) { differentiate_norm(c, false, 2); },
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
    .forward = [](const Call& c) { differentiate_norm(c, true, 4); },
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

}  // namespace weft
