// SPDX-License-Identifier: Apache-2.0

#include "ops/structure.h"
#include "weft/error.h"
#include "weft/extend/op.h"
#include "weft/ops/shapes.h"

namespace weft {

static Rule permute_rule(const Attributes& attributes, std::span<const Shape> shapes) {
  std::string in, out;
  for (int d = 0; d < shapes[0].ndim(); ++d) {
    in += dim_name(d) + " ";
    out += dim_name(static_cast<int>(attributes.structure[d])) + " ";
  }
  return {array_text(in) + " -> " + array_text(out)};
}

static bool fits_permute(const Dims& order, std::span<const Shape> shapes) {
  unsigned seen = 0;
  for (int64_t dim : order) {
    if (!is_dim(dim, shapes[0]) || seen >> dim & 1) return false;
    seen |= 1u << dim;
  }
  return order.ndim() == shapes[0].ndim();
}

static const Op permute_op = register_op({
    .name = "permute",
    .rule_of = permute_rule,
    .structure = {"order of the dims", fits_permute},
    .linear = {{0}},
    .view = [](const Call& c) -> std::optional<View> {
      View view;
      for (int64_t dim : c.attributes().structure) {
        view.strides.push_back(c.in(0).strides[static_cast<int>(dim)]);
      }
      return view;
    },
    .backward =
        [](const Grad& g) {
          std::vector<int> inverse(static_cast<size_t>(g.attributes().structure.ndim()));
          for (int d = 0; d < g.attributes().structure.ndim(); ++d) {
            inverse[static_cast<size_t>(g.attribute(d))] = d;
          }
          g.give(0, permute(g.grad(), inverse));
        },
    .saves_in = std::vector<int>{},
    .samples = {{.shapes = {{5, 7}}, .attributes = {.structure = {1, 0}}},
                {.shapes = {{5, 3, 7}}, .attributes = {.structure = {2, 0, 1}}}},
});

Tensor permute(const Tensor& a, const std::vector<int>& dims) {
  if (!a) fail("permute: no tensor is given, expected one");
  if (static_cast<int>(dims.size()) != a.ndim()) {
    fail("permute: number of dims is ", dims.size(), ", expected ", a.ndim(), ", those of ",
         a.shape());
  }
  Dims order;
  unsigned seen = 0;
  for (int dim : dims) {
    int at = normalized_dim("permute", dim, a.ndim());
    if (seen >> at & 1) fail("permute: dim ", at, " is given twice, expected once");
    seen |= 1u << at;
    order.push_back(at);
  }
  return permute_op({a}, {.structure = order});
}

Tensor transpose(const Tensor& a, int dim0, int dim1) {
  if (!a) fail("transpose: no tensor is given, expected one");
  Dims order;
  for (int d = 0; d < a.ndim(); ++d) order.push_back(d);
  std::swap(order[normalized_dim("transpose", dim0, a.ndim())],
            order[normalized_dim("transpose", dim1, a.ndim())]);
  return permute_op({a}, {.structure = order});
}

Tensor Tensor::transpose(int dim0, int dim1) const { return weft::transpose(*this, dim0, dim1); }

Tensor Tensor::t() const {
  if (!*this || ndim() != 2)
    fail("t: the tensor is ", *this ? concat(shape()) : "empty", ", expected a matrix");
  return weft::transpose(*this, 0, 1);
}

}  // namespace weft
