// SPDX-License-Identifier: Apache-2.0
#include "ops/take.h"

#include "ops/along_dim.h"
#include "src/kernels/copy/dense.h"
#include "src/kernels/take/take.h"
#include "weft/ops/along_dim.h"
#include "weft/ops/shapes.h"

namespace weft {

// structure: dim and, in the gradients, its size. Indices are checked on the rank that holds them.

/// Returns operand 1, after checking that its indices fit a dim of that size.
static DenseBlock indices_within(const Call& c, const char* what, int64_t size) {
  DenseBlock indices = DenseBlock::of(c.in(1));
  if (auto outside = find_index_outside(indices, size)) {
    fail(what, ": index is ", *outside, ", expected one of the ", size, " elements of dim ",
         along_dim(c));
  }
  return indices;
}

static void take_forward(const Call& c, const char* what) {
  const int dim = along_dim(c);
  const DenseBlock indices = indices_within(c, what, c.in_shape(0)[dim]);
  take_along(c.out(), DenseBlock::of(c.in(0)), indices, dim);
}

static void add_forward(const Call& c, const char* what) {
  const DenseBlock indices = indices_within(c, what, c.attribute(1));
  add_along(c.out(), DenseBlock::of(c.in(0)), indices, along_dim(c));
}

/// The gradient of take: adds up slices at the indices that they were taken from.
static const Op add_slices_op = register_op({
    .name = "add_slices",
    .rule_of =
        [](const Attributes& a, std::span<const Shape> shapes) {
          const int dim = static_cast<int>(a.structure[0]), ndim = shapes[0].ndim();
          return Rule{dims_with(ndim, dim, "i") + ", i -> " + dims_with(ndim, dim, "[+n]"),
                      {{"n", a.structure[1]}}};
        },
    .structure = dim_and_size(),
    .linear = {{0}},
    .forward = [](const Call& c) { add_forward(c, "add_slices"); },
    .backward = [](const Grad& g) { g.give(0, take(g.grad(), g.in(1), int(g.attribute(0)))); },
    .saves_in = std::vector<int>{1},
    .samples = {{.shapes = {{5, 3}, {5}},
                 .attributes = {.structure = {0, 7}},
                 .dtypes = {f32, i64},
                 .low = -7,
                 .high = 7},
                {.shapes = {{2, 5}, {5}},
                 .attributes = {.structure = {1, 3}},
                 .dtypes = {f32, i32},
                 .low = -3,
                 .high = 3}},
});

static const Op take_op = register_op({
    .name = "take",
    .rule_of =
        [](const Attributes& a, std::span<const Shape> shapes) {
          const int dim = static_cast<int>(a.structure[0]), ndim = shapes[0].ndim();
          return Rule{dims_with(ndim, dim, "[n]") + ", i -> " + dims_with(ndim, dim, "i")};
        },
    .structure = one_dim(),
    .linear = {{0}},
    .forward = [](const Call& c) { take_forward(c, "take"); },
    .backward =
        [](const Grad& g) {
          const int64_t dim = g.attribute(0), size = g.in_shape(0)[static_cast<int>(dim)];
          g.give(0, add_slices_op, {g.grad(), g.in(1)}, {.structure = {dim, size}});
        },
    .saves_in = std::vector<int>{1},
    .samples = {{.shapes = {{7, 3}, {5}},
                 .attributes = {.structure = {0}},
                 .dtypes = {f32, i64},
                 .low = -7,
                 .high = 7},
                {.shapes = {{5, 3}, {2}},
                 .attributes = {.structure = {1}},
                 .dtypes = {f32, i32},
                 .low = -3,
                 .high = 3}},
});

/// The gradient of take_along_dim: adds up elements at the indices that they were taken from.
static const Op add_along_dim_op = register_op({
    .name = "add_along_dim",
    .rule_of =
        [](const Attributes& a, std::span<const Shape> shapes) {
          const int dim = static_cast<int>(a.structure[0]), ndim = shapes[0].ndim();
          const std::string taken = dims_with(ndim, dim, "[i]");
          return Rule{taken + ", " + taken + "-> " + dims_with(ndim, dim, "[+n]"),
                      {{"n", a.structure[1]}}};
        },
    .structure = dim_and_size(),
    .linear = {{0}},
    .forward = [](const Call& c) { add_forward(c, "add_along_dim"); },
    .backward =
        [](const Grad& g) { g.give(0, take_along_dim(g.grad(), g.in(1), int(g.attribute(0)))); },
    .saves_in = std::vector<int>{1},
    .samples = {{.shapes = {{5, 3}, {5, 3}},
                 .attributes = {.structure = {0, 7}},
                 .dtypes = {f32, i64},
                 .low = -7,
                 .high = 7}},
});

Tensor add_along_dim(const Tensor& values, const Tensor& indices, int dim, int64_t size) {
  return add_along_dim_op({values, indices}, {.structure = {dim, size}});
}

static const Op take_along_dim_op = register_op({
    .name = "take_along_dim",
    .rule_of =
        [](const Attributes& a, std::span<const Shape> shapes) {
          const int dim = static_cast<int>(a.structure[0]), ndim = shapes[0].ndim();
          const std::string taken = dims_with(ndim, dim, "i");
          return Rule{dims_with(ndim, dim, "[n]") + ", " + taken + "-> " + taken};
        },
    .structure = one_dim(),
    .linear = {{0}},
    .forward = [](const Call& c) { take_forward(c, "take_along_dim"); },
    .backward =
        [](const Grad& g) {
          const int dim = static_cast<int>(g.attribute(0));
          g.give(0, add_along_dim(g.grad(), g.in(1), dim, g.in_shape(0)[dim]));
        },
    .saves_in = std::vector<int>{1},
    .samples = {{.shapes = {{7, 3}, {5, 3}},
                 .attributes = {.structure = {0}},
                 .dtypes = {f32, i64},
                 .low = -7,
                 .high = 7},
                {.shapes = {{5, 3}, {5, 2}},
                 .attributes = {.structure = {1}},
                 .dtypes = {f32, i32},
                 .low = -3,
                 .high = 3}},
});

static void check_are_indices(const char* what, const Tensor& indices) {
  if (!indices) fail(what, ": no tensor is given, expected one");
  if (indices.dtype() == i32 || indices.dtype() == i64) return;
  fail(what, ": dtype of indices is ", indices.dtype(), ", expected i32 or i64");
}

Tensor take(const Tensor& a, const Tensor& indices, int dim) {
  const int at = checked_dim("take", a, dim);
  check_are_indices("take", indices);
  if (indices.ndim() != 1) fail("take: indices are ", indices.shape(), ", expected one dim");
  return take_op({a, indices}, {.structure = {at}});
}

Tensor take_along_dim(const Tensor& a, const Tensor& indices, int dim) {
  const int at = checked_dim("take_along_dim", a, dim);
  check_are_indices("take_along_dim", indices);
  if (indices.ndim() != a.ndim()) {
    fail("take_along_dim: indices are ", indices.shape(), ", expected ", a.ndim(),
         " dims, those of the tensor ", a.shape());
  }
  Shape from = a.shape(), where = indices.shape();
  for (int d = 0; d < a.ndim(); ++d) {
    if (d == at || from[d] == where[d]) continue;
    (from[d] == 1 ? from : where)[d] = from[d] == 1 ? where[d] : from[d];
  }
  return take_along_dim_op({expand(a, from), expand(indices, where)}, {.structure = {at}});
}

}  // namespace weft
