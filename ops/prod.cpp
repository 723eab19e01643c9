// SPDX-License-Identifier: Apache-2.0
#include "ops/promotion.h"
#include "ops/reduced_dims.h"
#include "src/kernels/reduce/reduce.h"
#include "src/kernels/scan/scan.h"
#include "weft/ops/reductions.h"

namespace weft {

/// Along the last dim: the result's gradient times the product of all other elements.
static const Op prod_gradient_op = register_op({
    .name = "prod_gradient",
    .rule = "..., ... [v] -> ... [v]",
    .linear = {{0}},
    .dtype = [](const Attributes&, std::span<const DType> dtypes, int) { return dtypes[1]; },
    .forward =
        [](const Call& c) {
          product_gradient(c.out(), c.in(0), c.in(1), c.in(1).shape.ndim() - 1);
        },
    .samples = {{{{5}, {5, 7}}}, {{{2, 5}, {2, 5, 3}}}},
});

/// Moves the reduced dims to the end and joins them, for prod_gradient.
static void give_products_of_others(const Grad& g) {
  std::vector<int> order, last, back;
  Shape rows;
  int64_t count = 1;
  for (int d = 0; d < g.in_shape(0).ndim(); ++d) {
    if (is_reduced(g.attributes(), d)) {
      last.push_back(d);
      count *= g.in_shape(0)[d];
    } else {
      order.push_back(d);
      rows.push_back(g.in_shape(0)[d]);
    }
  }
  order.insert(order.end(), last.begin(), last.end());
  rows.push_back(count);
  const Tensor turned = permute(g.in(0), order);
  const Tensor gradient = prod_gradient_op({g.grad(), reshape(turned, rows)});
  back.resize(order.size());
  for (size_t d = 0; d < order.size(); ++d)
    back[static_cast<size_t>(order[d])] = static_cast<int>(d);
  g.give(0, permute(reshape(gradient, turned.shape()), back));
}

/// There is no Partial product, so the reduced dims are never sharded.
static const Op prod_op = register_op({
    .name = "prod",
    .rule_of =
        [](const Attributes& attributes, std::span<const Shape> shapes) {
          return reduction_rule(attributes, shapes, "[", "]");
        },
    .structure = set_of_dims(),
    .dtype = [](const Attributes&, std::span<const DType> dtypes,
                int) { return total_dtype(dtypes[0]); },
    .forward = [](const Call& c) { reduce(Reduction::product, c.out(), c.in(0), reduced_dims(c)); },
    .backward = give_products_of_others,
    .samples = {{.shapes = {{5, 7}}, .attributes = {.structure = {1}}, .low = -1.5, .high = 1.5},
                {.shapes = {{5, 3, 2}}, .attributes = {.structure = {5}}, .low = 0.5, .high = 1.5},
                {.shapes = {{2, 3}}, .attributes = {.structure = {3}}},
                {.shapes = {{5, 7}}, .attributes = {.structure = {2}}, .dtypes = {i32}}},
});

Tensor prod(const Tensor& a, const std::vector<int>& dims, bool keepdims) {
  return reduced(prod_op, a, bits_of_dims("prod", a, dims), keepdims);
}

}  // namespace weft
