// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/adamw8/adamw8.h"

#include <algorithm>
#include <span>

#include "src/kernels/copy/copy.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/adamw8.h"
#include "weft/extend/op.h"

namespace weft {

static_assert(kScaleBlock == kAdamW8Block);

/// Runs the kernel on `blocks`, whose gradient is operand number `gradient`; the scale of the
/// gradient follows it.
static void run_adamw8(const Call& c, int gradient, AdamW8Blocks blocks) {
  const DenseBlock dense = DenseBlock::of(c.in(gradient));
  blocks.grad = dense;
  blocks.factor = c.in(gradient + 1);
  blocks.first_column = c.attributes().structure[0];
  check_blocks(blocks);
  adamw8(blocks, unpack<AdamWNumbers>(c.attributes().values));
}

/// Checks that the scales, operand number `scales`, have all blocks of the columns that the part of
/// the matrix, operand number `part`, has from the first column on.
static Structure first_column_for(size_t scales, size_t part) {
  return {"first column", [=](const Dims& numbers, std::span<const Shape> shapes) {
            if (numbers.ndim() != 1 || shapes.size() <= std::max(scales, part)) return false;
            const int64_t first = numbers[0];
            if (first < 0 || first > int64_t{1} << 40) return false;
            if (shapes[scales].ndim() != 2 || shapes[part].ndim() != 2) return false;
            return shapes[scales][1] * kScaleBlock >= first + shapes[part][1];
          }};
}

static OpSample adamw8_sample(std::vector<Shape> shapes, std::vector<DType> dtypes) {
  return {.shapes = std::move(shapes),
          .attributes = {.structure = {100}, .values = {0.1, 0.9, 0.99, 1e-8, 0.1, 3}},
          .dtypes = std::move(dtypes),
          .low = 0.1,
          .high = 2};
}

/// operands: new scales of m and v, gradient, its scale, m, v, their scales; values: AdamWNumbers;
/// structure: the first column.
static const Op adamw8_scales_op = register_op({
    .name = "adamw8_scales_",
    .rule = "r [b], r [b], r [c], ., r [c], r [c], r [b], r [b] ->",
    .structure = first_column_for(0, 2),
    .forward =
        [](const Call& c) {
          run_adamw8(c, 2,
                     {.m = c.in(4),
                      .v = c.in(5),
                      .m_scales = c.in(6),
                      .v_scales = c.in(7),
                      .new_m_scales = c.in(0),
                      .new_v_scales = c.in(1)});
        },
    .writes = {0, 1},
    .differentiable = false,
    .samples = {adamw8_sample({{5, 3}, {5, 3}, {5, 160}, {}, {5, 160}, {5, 160}, {5, 3}, {5, 3}},
                              {f32, f32, f32, f32, u8, u8, f32, f32})},
});

/// operands: the parameter, m, v, gradient, its scale, the scales of m and v, their new scales;
/// values and structure as above.
static const Op adamw8_op = register_op({
    .name = "adamw8_",
    .rule = "r [c], r [c], r [c], r [c], ., r [b], r [b], r [b], r [b] ->",
    .structure = first_column_for(5, 0),
    .forward =
        [](const Call& c) {
          run_adamw8(c, 3,
                     {.parameter = c.in(0),
                      .m = c.in(1),
                      .v = c.in(2),
                      .m_scales = c.in(5),
                      .v_scales = c.in(6),
                      .new_m_scales = c.in(7),
                      .new_v_scales = c.in(8)});
        },
    .writes = {0, 1, 2},
    .differentiable = false,
    .samples = {adamw8_sample(
        {{5, 160}, {5, 160}, {5, 160}, {5, 160}, {}, {5, 3}, {5, 3}, {5, 3}, {5, 3}},
        {f32, u8, u8, f32, f32, f32, f32, f32, f32})},
});

static void check_matrix(const char* what, const char* name, const Tensor& tensor,
                         const Shape& shape, DType dtype) {
  if (!tensor) fail(what, ": ", name, " is missing, expected ", dtype, ' ', shape);
  if (tensor.shape() == shape && tensor.dtype() == dtype) return;
  fail(what, ": ", name, " is ", tensor.dtype(), ' ', tensor.shape(), ", expected ", dtype, ' ',
       shape);
}

static void check_step8(const char* what, const Tensor& gradient, const Moments8& moments,
                        const Tensor& m_scales, const Tensor& v_scales, const AdamWStep& step,
                        int64_t first_column) {
  if (!gradient || gradient.ndim() != 2 || !is_floating(gradient.dtype())) {
    fail(what, ": the gradient is ",
         gradient ? concat(gradient.dtype(), ' ', gradient.shape()) : "",
         ", expected a matrix of floating numbers");
  }
  if (step.step < 1) fail(what, ": step must be at least 1, got ", step.step);
  if (first_column < 0) fail(what, ": first column is ", first_column, ", expected at least 0");
  const Shape shape = gradient.shape();
  check_matrix(what, "m", moments.m, shape, u8);
  check_matrix(what, "v", moments.v, shape, u8);
  const int64_t least = (first_column + shape[1] + kScaleBlock - 1) / kScaleBlock;
  const int64_t blocks = moments.m_scales && moments.m_scales.ndim() == 2
                             ? std::max(least, moments.m_scales.size(1))
                             : least;
  const Shape scales{shape[0], blocks};
  check_matrix(what, "scales of m", moments.m_scales, scales, f32);
  check_matrix(what, "scales of v", moments.v_scales, scales, f32);
  check_matrix(what, "new scales of m", m_scales, scales, f32);
  check_matrix(what, "new scales of v", v_scales, scales, f32);
}

void adamw8_scales_(const Tensor& m_scales, const Tensor& v_scales, const Tensor& gradient,
                    const Tensor& gradient_scale, const Moments8& before, const AdamWStep& step,
                    int64_t first_column) {
  check_step8("adamw8_scales_", gradient, before, m_scales, v_scales, step, first_column);
  const NoGrad no_grad;
  adamw8_scales_op({m_scales, v_scales, gradient, gradient_scale, before.m, before.v,
                    before.m_scales, before.v_scales},
                   {.structure = {first_column}, .values = pack_values(step)});
}

void adamw8_(const Tensor& parameter, const Tensor& gradient, const Tensor& gradient_scale,
             const Moments8& moments, const Tensor& m_scales, const Tensor& v_scales,
             const AdamWStep& step, int64_t first_column) {
  check_step8("adamw8_", gradient, moments, m_scales, v_scales, step, first_column);
  if (!parameter || !(parameter.shape() == gradient.shape())) {
    fail("adamw8_: the parameter is ", parameter ? parameter.shape() : Shape(), ", expected ",
         gradient.shape(), ", the shape of the gradient");
  }
  const NoGrad no_grad;
  adamw8_op({parameter, moments.m, moments.v, gradient, gradient_scale, moments.m_scales,
             moments.v_scales, m_scales, v_scales},
            {.structure = {first_column}, .values = pack_values(step)});
}

}  // namespace weft
