// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/tensor_body.h"
#include "ops/structure.h"
#include "weft/error.h"
#include "weft/extend/op.h"
#include "weft/ops/shapes.h"

namespace weft {

static Rule expand_rule(const Attributes& attributes, std::span<const Shape> shapes) {
  const Shape& to = attributes.structure;
  int added = to.ndim() - shapes[0].ndim();
  std::string in, out;
  std::vector<std::pair<std::string, int64_t>> sizes;
  for (int d = 0; d < to.ndim(); ++d) {
    bool kept = d >= added && shapes[0][d - added] == to[d];
    if (d >= added) in += kept ? concat(dim_name(d), " ") : concat("[", dim_name(d, "one"), "] ");
    out += concat(kept ? "" : "+", dim_name(d), " ");
    if (!kept) sizes.emplace_back(dim_name(d), to[d]);
  }
  return {concat(array_text(in), " -> ", array_text(out)), std::move(sizes)};
}

static bool fits_expand(const Dims& to, std::span<const Shape> shapes) {
  return are_sizes(to) && broadcasts_to(shapes[0], to);
}

static const Op expand_op = register_op({
    .name = "expand",
    .rule_of = expand_rule,
    .structure = {"shape to broadcast to", fits_expand},
    .linear = {{0}},
    .view = [](const Call& c) -> std::optional<View> {
      const Shape& to = c.out_shape();
      int added = to.ndim() - c.in_shape(0).ndim();
      View view;
      for (int d = 0; d < to.ndim(); ++d) {
        bool kept = d >= added && c.in_shape(0)[d - added] == to[d];
        view.strides.push_back(kept ? c.in(0).strides[d - added] : 0);
      }
      return view;
    },
    .backward = [](const Grad& g) { g.give(0, g.grad()); },
    .saves_in = std::vector<int>{},
    .samples = {{.shapes = {{5, 1}}, .attributes = {.structure = {5, 7}}},
                {.shapes = {{1, 3}}, .attributes = {.structure = {2, 5, 3}}}},
});

Tensor expand(const Tensor& a, const Shape& shape) {
  if (!a) fail("expand: no tensor is given, expected one");
  if (!broadcasts_to(a.shape(), shape)) {
    fail("expand: the tensor is ", a.shape(), ", expected one that broadcasts to ", shape);
  }
  if (shape == a.shape()) return a;
  return expand_op({a}, {.structure = shape});
}

}  // namespace weft
