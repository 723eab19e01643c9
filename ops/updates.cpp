// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/in_place.h"

#include "src/kernels/adamw/adamw.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/map/map.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/op.h"
#include "weft/ops/shapes.h"
#include "weft/ops/updates.h"

namespace weft {

namespace {

struct Scale {
  template <class T> WEFT_FN T operator()(T a, T b) const { return a * b; }
};

struct AddScaled {
  double factor;
  template <class T> WEFT_FN T operator()(T a, T x, T b) const { return a + x * (b * T(factor)); }
};

}  // namespace

/// operands: parameter, m, v, gradient, gradient scale and, if given, the step's rates; values:
/// AdamWNumbers.
static Op register_adamw(const char* name, RuleLiteral rule, std::vector<Shape> shapes,
                         std::vector<DType> dtypes) {
  return register_op({
      .name = name,
      .rule = rule,
      .forward =
          [](const Call& c) {
            adamw(c.in(0), c.in(1), c.in(2), DenseBlock::of(c.in(3)),
                  unpack<AdamWNumbers>(c.attributes().values), &c.in(4),
                  c.operands() > 5 ? &c.in(5) : nullptr);
          },
      .writes = {0, 1, 2},
      .differentiable = false,
      .samples = {{.shapes = std::move(shapes),
                   .attributes = {.values = {0.1, 0.9, 0.99, 1e-8, 0.1, 3}},
                   .dtypes = std::move(dtypes),
                   .low = 0.1,
                   .high = 2}},
  });
}

static const Op adamw_op =
    register_adamw("adamw_", "..., ..., ..., ..., . ->", {{5, 7}, {5, 7}, {5, 7}, {5, 7}, {}}, {});
static const Op adamw_by_rates_op =
    register_adamw("adamw_by_rates_", "..., ..., ..., ..., ., [r] ->",
                   {{5, 7}, {5, 7}, {5, 7}, {5, 7}, {}, {3}}, {f32, f32, f32, f32, f32, f64});

/// operands: parameter, with momentum its velocity, gradient, gradient scale; values: Sgd.
static Op register_sgd(const char* name, RuleLiteral rule, std::vector<int> writes,
                       OpSample sample) {
  return register_op({
      .name = name,
      .rule = rule,
      .forward =
          [](const Call& c) {
            const int gradient = c.operands() - 2;
            sgd(c.in(0), gradient > 1 ? c.in(1) : MemoryBlock(), DenseBlock::of(c.in(gradient)),
                unpack<Sgd>(c.attributes().values), &c.in(gradient + 1));
          },
      .writes = std::move(writes),
      .differentiable = false,
      .samples = {std::move(sample)},
  });
}

static const Op sgd_momentum_op = register_sgd(
    "sgd_momentum_", "..., ..., ..., . ->", {0, 1},
    {.shapes = {{5, 7}, {5, 7}, {5, 7}, {}}, .attributes = {.values = {0.1, 0.9, 0.01, 1}}});
static const Op sgd_op =
    register_sgd("sgd_", "..., ..., . ->", {0},
                 {.shapes = {{5, 7}, {5, 7}, {}}, .attributes = {.values = {0.1, 0, 0.01, 0}}});

/// operands: parameter, m, gradient, gradient scale; values: LionNumbers.
static const Op lion_op = register_op({
    .name = "lion_",
    .rule = "..., ..., ..., . ->",
    .forward =
        [](const Call& c) {
          lion(c.in(0), c.in(1), DenseBlock::of(c.in(2)),
               unpack<LionNumbers>(c.attributes().values), &c.in(3));
        },
    .writes = {0, 1},
    .differentiable = false,
    .samples = {{.shapes = {{5, 7}, {5, 7}, {5, 7}, {}},
                 .attributes = {.values = {0.1, 0.9, 0.99, 0.1}}}},
});

static const Op scale_op = register_op({
    .name = "scale_",
    .rule = "..., . ->",
    .linear = {{0}},
    .forward = [](const Call& c) { map_floating(Scale{}, c.in(0), c.in(0), c.in(1)); },
    .writes = {0},
    .differentiable = false,
    .samples = {{{{5, 7}, {}}}},
});

/// operands: a, x, b of one element; values: the factor.
static const Op add_scaled_op = register_op({
    .name = "add_scaled_",
    .rule = "..., ..., . ->",
    .linear = {{0, 1}},
    .forward =
        [](const Call& c) {
          map_floating(AddScaled{c.value(0)}, c.in(0), c.in(0), c.in(1), c.in(2));
        },
    .writes = {0},
    .differentiable = false,
    .samples = {{.shapes = {{5, 7}, {5, 7}, {}}, .attributes = {.values = {0.5}}}},
});

/// Returns the one element of `factor` as a tensor without dims.
static Tensor factor_of(const char* what, const Tensor& factor) {
  if (!factor) fail(what, ": no factor is given, expected one");
  if (factor.ndim() == 0) [[likely]]
    return factor;
  if (factor.numel() != 1) fail(what, ": factor is ", factor.shape(), ", expected one element");
  return reshape(factor, {});
}

static void check_shapes(const char* what, const Tensor& parameter, const Tensor& other,
                         const char* name) {
  if (!parameter || !other) fail(what, ": no tensor is given, expected one");
  if (parameter.shape() == other.shape()) [[likely]]
    return;
  fail(what, ": ", name, " is ", other.shape(), ", expected ", parameter.shape(),
       ", the shape of the parameter");
}

void adamw_(const Tensor& parameter, const Tensor& m, const Tensor& v, const Tensor& gradient,
            const Tensor& gradient_scale, const AdamWStep& step, const Tensor& rates) {
  check_shapes("adamw_", parameter, m, "m");
  check_shapes("adamw_", parameter, v, "v");
  check_shapes("adamw_", parameter, gradient, "the gradient");
  if (step.step < 1) fail("adamw_: step must be at least 1, got ", step.step);
  NoGrad no_grad;
  const Tensor factor = factor_of("adamw_", gradient_scale);
  const Attributes numbers{.values = pack_values(step)};
  rates ? adamw_by_rates_op({parameter, m, v, gradient, factor, rates}, numbers)
        : adamw_op({parameter, m, v, gradient, factor}, numbers);
}

std::vector<double> adamw_rates(const AdamWStep& step) {
  const auto rates = rates_of(unpack<AdamWNumbers>(pack_values(step)));
  return {rates.begin(), rates.end()};
}

void sgd_(const Tensor& parameter, const Tensor& velocity, const Tensor& gradient,
          const Tensor& gradient_scale, double learning_rate, double momentum, double weight_decay,
          bool nesterov) {
  check_shapes("sgd_", parameter, gradient, "the gradient");
  if (velocity) check_shapes("sgd_", parameter, velocity, "the velocity");
  if (!velocity && momentum != 0)
    fail("sgd_: velocity is missing, expected one for momentum ", momentum);
  NoGrad no_grad;
  const Tensor scale = factor_of("sgd_", gradient_scale);
  const Sgd step{learning_rate, momentum, weight_decay, velocity && nesterov};
  const Attributes numbers{.values = pack_values(step)};
  velocity ? sgd_momentum_op({parameter, velocity, gradient, scale}, numbers)
           : sgd_op({parameter, gradient, scale}, numbers);
}

void lion_(const Tensor& parameter, const Tensor& m, const Tensor& gradient,
           const Tensor& gradient_scale, const LionStep& step) {
  check_shapes("lion_", parameter, m, "m");
  check_shapes("lion_", parameter, gradient, "the gradient");
  NoGrad no_grad;
  lion_op({parameter, m, gradient, factor_of("lion_", gradient_scale)},
          {.values = pack_values(step)});
}

void scale_(const Tensor& a, const Tensor& b) {
  if (!a) fail("scale_: no tensor is given, expected one");
  scale_op({a, factor_of("scale_", b)});
}

void add_scaled_(const Tensor& a, const Tensor& x, const Tensor& b, double factor) {
  check_shapes("add_scaled_", a, x, "x");
  add_scaled_op({a, x, factor_of("add_scaled_", b)}, {.values = {factor}});
}

}  // namespace weft
