// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/sort/sort.h"

#include "ops/along_dim.h"
#include "ops/promotion.h"
#include "ops/take.h"
#include "weft/ops/along_dim.h"

namespace weft {

// structure: SortAttributes.

/// Results: the sorted elements and their indices, which the gradient needs.
struct SortAttributes {
  int dim;
  bool descending;
};

static const Op sort_op = register_op({
    .name = "sort",
    .rule_of =
        [](const Attributes& attributes, std::span<const Shape> shapes) {
          Rule rule = along_dim_rule<1>(attributes, shapes);
          rule.text += ", " + rule.text.substr(0, rule.text.find("->"));
          return rule;
        },
    .structure = dim_and_flag("dim, whether descending"),
    .dtype = [](const Attributes&, std::span<const DType> dtypes,
                int result) { return result ? i64 : dtypes[0]; },
    .forward =
        [](const Call& c) {
          const auto [dim, descending] = unpack<SortAttributes>(c.attributes().structure);
          const MemoryBlock values = with_last_dim(c.out(0), dim);
          sort_rows(&values, with_last_dim(c.out(1), dim), with_last_dim(c.in(0), dim), descending);
        },
    .backward =
        [](const Grad& g) {
          const int dim = unpack<SortAttributes>(g.attributes().structure).dim;
          g.give(0, add_along_dim(g.grad(), g.out(1), dim, g.in_shape(0)[dim]));
        },
    .saves_in = std::vector<int>{},
    .saves_out = {1},
    .samples = {{.shapes = {{5, 7}}, .attributes = {.structure = {1, 0}}},
                {.shapes = {{5, 3, 2}}, .attributes = {.structure = {0, 1}}},
                {.shapes = {{5, 7}}, .attributes = {.structure = {0, 1}}, .dtypes = {i64}}},
});

static const Op argsort_op = register_op({
    .name = "argsort",
    .rule_of = along_dim_rule<1>,
    .structure = dim_and_flag("dim, whether descending"),
    .dtype = [](const Attributes&, std::span<const DType>, int) { return i64; },
    .forward =
        [](const Call& c) {
          const auto [dim, descending] = unpack<SortAttributes>(c.attributes().structure);
          sort_rows(nullptr, with_last_dim(c.out(), dim), with_last_dim(c.in(0), dim), descending);
        },
    .differentiable = false,
    .samples = {{.shapes = {{5, 7}}, .attributes = {.structure = {1, 0}}},
                {.shapes = {{5, 3}}, .attributes = {.structure = {0, 1}}, .dtypes = {i32}}},
});

Tensor sort(const Tensor& a, int dim, bool descending) {
  const SortAttributes attributes{checked_dim("sort", a, dim), descending};
  return ordered_back(sort_op({ordered_as_i64(a)}, {.structure = pack_structure(attributes)}),
                      a.dtype());
}

Tensor argsort(const Tensor& a, int dim, bool descending) {
  const SortAttributes attributes{checked_dim("argsort", a, dim), descending};
  return argsort_op({ordered_as_i64(a)}, {.structure = pack_structure(attributes)});
}

}  // namespace weft
