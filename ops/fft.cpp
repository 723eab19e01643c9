// SPDX-License-Identifier: Apache-2.0
#include "ops/fft.h"

#include "ops/complex.h"
#include "ops/dims.h"
#include "src/kernels/fft/fft.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/shapes.h"

namespace weft {

// The transformed dim is whole on each device, the others may be sharded. structure: the dim, and a
// flag or the length; value: the scale. Not among all_ops(), whose samples are real.

/// The rule of a transform whose result has `size` elements along the dim.
static Rule transform_rule(const Shape& shape, int dim, int64_t size) {
  const std::string out = dims_with(shape.ndim(), dim, "[+m]");
  return {dims_with(shape.ndim(), dim, "[n]") + "-> " + out, {{"m", size}}};
}

static int dim_of(const Attributes& attributes) {
  return static_cast<int>(attributes.structure[0]);
}

static OpSpec transform(OpSpec spec) {
  spec.takes = {anything()};
  spec.complex = true;
  spec.linear = {{0}};
  spec.positions.emplace();
  spec.saves_in.emplace();
  return spec;
}

static const Op fft_op(transform({
    .name = "fft",
    .rule_of =
        [](const Attributes& attributes, std::span<const Shape> shapes) {
          const int dim = dim_of(attributes);
          const std::string array = dims_with(shapes[0].ndim(), dim, "[n]");
          return Rule{array + "-> " + array};
        },
    .structure = dim_and_flag("dim, inverse"),
    .forward =
        [](const Call& c) {
          fourier_transform(c.out(), c.in(0), dim_of(c.attributes()), c.attribute(1) != 0,
                            c.value(0));
        },
    .backward =
        [](const Grad& g) {
          g.give(0, complex_transform(g.grad(), dim_of(g.attributes()), g.attribute(1) == 0,
                                      g.value(0)));
        },
}));

static const Op rfft_op(transform({
    .name = "rfft",
    .rule_of =
        [](const Attributes& attributes, std::span<const Shape> shapes) {
          const int dim = dim_of(attributes);
          return transform_rule(shapes[0], dim, shapes[0][dim] / 2 + 1);
        },
    .structure = one_dim(),
    .dtype = [](const Attributes&, std::span<const DType> dtypes,
                int) { return complex_dtype(dtypes[0]); },
    .forward =
        [](const Call& c) {
          fourier_transform(c.out(), c.in(0), dim_of(c.attributes()), false, c.value(0));
        },
    .backward =
        [](const Grad& g) {
          const int dim = dim_of(g.attributes());
          const int64_t missing = g.in_shape(0)[dim] - g.grad().size(dim);
          const Tensor all = pad(g.grad(), dim, 0, missing);
          g.give(0, real(complex_transform(all, dim, true, g.value(0))));
        },
}));

/// Frequencies other than 0 and n / 2 count twice, for their conjugates too.
static const Op irfft_op(transform({
    .name = "irfft",
    .rule_of =
        [](const Attributes& attributes, std::span<const Shape> shapes) {
          return transform_rule(shapes[0], dim_of(attributes), attributes.structure[1]);
        },
    .structure = {"dim, length",
                  [](const Dims& s, std::span<const Shape> shapes) {
                    return s.ndim() == 2 && is_dim(s[0], shapes[0]) &&
                           shapes[0][static_cast<int>(s[0])] == s[1] / 2 + 1;
                  }},
    .dtype = [](const Attributes&, std::span<const DType> dtypes,
                int) { return real_dtype(dtypes[0]); },
    .forward =
        [](const Call& c) {
          fourier_transform(c.out(), c.in(0), dim_of(c.attributes()), true, c.value(0));
        },
    .backward =
        [](const Grad& g) {
          const int dim = dim_of(g.attributes());
          const int64_t n = g.attribute(1), m = n / 2 + 1;
          const Tensor place = numbers_next_to(g.grad(), 0, m);
          const Tensor is_one = logical_or(equal(place, 0), equal(mul(place, 2), n));
          const Tensor weights = sub(2, cast(is_one, g.grad().dtype()));
          const Shape along = ones_but(g.grad().ndim(), dim, m);
          g.give(0, mul(real_transform(g.grad(), dim, g.value(0)), reshape(weights, along)));
        },
}));

Tensor complex_transform(const Tensor& a, int dim, bool inverse, double scale) {
  return fft_op({a}, {.structure = {dim, inverse}, .values = {scale}});
}

Tensor real_transform(const Tensor& a, int dim, double scale) {
  return rfft_op({a}, {.structure = {dim}, .values = {scale}});
}

Tensor half_transform(const Tensor& a, int dim, int64_t n, double scale) {
  return irfft_op({a}, {.structure = {dim, n}, .values = {scale}});
}

}  // namespace weft
