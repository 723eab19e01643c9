// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/triangle/triangle.h"

#include "ops/structure.h"
#include "weft/error.h"
#include "weft/extend/op.h"
#include "weft/ops/shapes.h"

namespace weft {

/// structure: whether upper; values: the diagonal.
static const Op triangle_op = register_op({
    .name = "triangle",
    .rule = "... m n -> ... m n",
    .moves = true,
    .structure = one_flag("flag for the upper one"),
    .linear = {{0}},
    .forward =
        [](const Call& c) {
          const Box& box = c.out_box();
          const int last = box.shape.ndim() - 1;
          copy_triangle(c.out(), c.in(0), c.attribute(0) != 0, static_cast<int64_t>(c.value(0)),
                        box.offset[last - 1], box.offset[last]);
        },
    .backward = [](const Grad& g) { g.give(0, triangle_op, {g.grad()}, g.attributes()); },
    .saves_in = std::vector<int>{},
    .samples = {{.shapes = {{5, 7}}, .attributes = {.structure = {0}}},
                {.shapes = {{2, 7, 5}}, .attributes = {.structure = {1}, .values = {-1}}},
                {.shapes = {{5, 3}}, .attributes = {.structure = {0}, .values = {1}}}},
});

static Tensor triangle(const char* what, const Tensor& a, bool upper, int64_t diagonal) {
  if (!a) fail(what, ": no tensor is given, expected one");
  if (a.ndim() < 2)
    fail(what, ": number of dims of ", a.shape(), " is ", a.ndim(), ", expected at least 2");
  return triangle_op({a}, {.structure = {upper}, .values = {static_cast<double>(diagonal)}});
}

Tensor tril(const Tensor& a, int64_t diagonal) { return triangle("tril", a, false, diagonal); }
Tensor triu(const Tensor& a, int64_t diagonal) { return triangle("triu", a, true, diagonal); }

}  // namespace weft
