// SPDX-License-Identifier: Apache-2.0
#include "ops/along_dim.h"
#include "ops/promotion.h"
#include "src/kernels/scan/scan.h"
#include "weft/ops/along_dim.h"
#include "weft/ops/factories.h"
#include "weft/ops/shapes.h"

namespace weft {

static DType total_dtype(const Attributes&, std::span<const DType> dtypes, int) {
  return is_floating(dtypes[0]) ? dtypes[0] : i64;
}

struct CumulativeAttributes {
  int dim;
  bool from_end;
};

/// The gradient sums in the opposite direction.
static const Op cumulative_sum_op = register_op({
    .name = "cumulative_sum",
    .rule_of = along_dim_rule<1>,
    .structure = dim_and_flag("dim, whether from the end"),
    .linear = {{0}},
    .dtype = total_dtype,
    .forward =
        [](const Call& c) {
          const auto [dim, from_end] = unpack<CumulativeAttributes>(c.attributes().structure);
          cumulative_sum(c.out(), c.in(0), dim, from_end);
        },
    .backward =
        [](const Grad& g) {
          const auto [dim, from_end] = unpack<CumulativeAttributes>(g.attributes().structure);
          g.give(0, cumulative_sum_op, {g.grad()},
                 {.structure = pack_structure(CumulativeAttributes{dim, !from_end})});
        },
    .saves_in = std::vector<int>{},
    .samples = {{.shapes = {{5, 7}}, .attributes = {.structure = {1, 0}}},
                {.shapes = {{5, 3, 2}}, .attributes = {.structure = {0, 1}}},
                {.shapes = {{5, 7}}, .attributes = {.structure = {0, 0}}, .dtypes = {i32}}},
});

static const Op cumulative_prod_gradient_op = register_op({
    .name = "cumulative_prod_gradient",
    .rule_of = along_dim_rule<2>,
    .structure = one_dim(),
    .linear = {{0}},
    .forward =
        [](const Call& c) { cumulative_product_gradient(c.out(), c.in(0), c.in(1), along_dim(c)); },
    .samples = {{.shapes = {{5, 7}, {5, 7}}, .attributes = {.structure = {1}}},
                {.shapes = {{5, 2}, {5, 2}}, .attributes = {.structure = {0}}}},
});

static const Op cumulative_prod_op = register_op({
    .name = "cumulative_prod",
    .rule_of = along_dim_rule<1>,
    .structure = one_dim(),
    .dtype = total_dtype,
    .forward = [](const Call& c) { cumulative_product(c.out(), c.in(0), along_dim(c)); },
    .backward =
        [](const Grad& g) {
          g.give(0, cumulative_prod_gradient_op, {g.grad(), g.in(0)}, g.attributes());
        },
    .samples = {{.shapes = {{5, 7}}, .attributes = {.structure = {1}}},
                {.shapes = {{5, 3, 2}}, .attributes = {.structure = {0}}},
                {.shapes = {{5, 7}}, .attributes = {.structure = {0}}, .dtypes = {i32}}},
});

/// Puts `initial` before the totals along `dim`.
static Tensor starting_with(double initial, const Tensor& totals, int dim) {
  TensorOptions options{.dtype = totals.dtype(), .device = totals.device()};
  if (totals.is_sharded()) options.sharding = Sharding(totals.sharding().mesh(), {});
  Shape shape = totals.shape();
  shape[dim] = 1;
  return cat({full(shape, initial, options), totals}, dim);
}

Tensor cumulative_sum(const Tensor& a, int dim, bool include_initial) {
  const int at = checked_dim("cumulative_sum", a, dim);
  const Tensor totals = cumulative_sum_op(
      {reduced_before_widening(a)}, {.structure = pack_structure(CumulativeAttributes{at, false})});
  return include_initial ? starting_with(0, totals, at) : totals;
}

Tensor cumulative_prod(const Tensor& a, int dim, bool include_initial) {
  const int at = checked_dim("cumulative_prod", a, dim);
  const Tensor totals = cumulative_prod_op({a}, {.structure = {at}});
  return include_initial ? starting_with(1, totals, at) : totals;
}

}  // namespace weft
