// SPDX-License-Identifier: Apache-2.0
#include "ops/reduce_along_dim.h"

#include "ops/along_dim.h"
#include "ops/take.h"
#include "src/kernels/copy/dense.h"
#include "weft/ops/along_dim.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/logic.h"

namespace weft {

struct ReducingAttributes {
  int dim;
  int64_t size;
  int combining;
};

/// The product of the other elements with the same index.
static Tensor product_of_others(const Tensor& a, const Tensor& indices, int dim, int64_t size) {
  const Tensor is_zero = equal(a, 0);
  const Tensor safe = masked_fill(a, is_zero, 1);
  const Tensor product = reduce_along_dim(safe, indices, dim, size, Combining::product);
  const Tensor zeros = add_along_dim(cast(is_zero, DType::i32), indices, dim, size);
  const Tensor here = sub(take_along_dim(zeros, indices, dim), cast(is_zero, DType::i32));
  const Tensor others = div(take_along_dim(product, indices, dim), safe);
  return masked_fill(others, greater(here, 0), 0);
}

/// An even share for each element that is the most or the least.
static Tensor shares(const Tensor& a, const Tensor& indices, const Tensor& out, int dim) {
  const Tensor found = cast(equal(a, take_along_dim(out, indices, dim)), a.dtype());
  const Tensor counts = add_along_dim(found, indices, dim, out.size(dim));
  return div(found, take_along_dim(counts, indices, dim));
}

static const Op reduce_along_dim_op = register_op({
    .name = "reduce_along_dim",
    .rule_of =
        [](const Attributes& a, std::span<const Shape> shapes) {
          const int dim = static_cast<int>(a.structure[0]), ndim = shapes[0].ndim();
          const std::string taken = dims_with(ndim, dim, "[i]");
          return Rule{taken + ", " + taken + "-> " + dims_with(ndim, dim, "[+n]"),
                      {{"n", a.structure[1]}}};
        },
    .structure = {"dim, size, combining",
                  [](const Dims& s, std::span<const Shape> shapes) {
                    return s.ndim() == 3 && is_dim(s[0], shapes[0]) && s[1] >= 0 && s[2] >= 0 &&
                           s[2] <= 2;
                  }},
    .forward =
        [](const Call& c) {
          const auto [dim, size, combining] = unpack<ReducingAttributes>(c.attributes().structure);
          const DenseBlock indices = DenseBlock::of(c.in(1));
          if (const auto outside = find_index_outside(indices, size)) {
            fail("scatter_reduce: index is ", *outside, ", expected one of the ", size,
                 " elements of dim ", dim);
          }
          reduce_along(c.out(), DenseBlock::of(c.in(0)), indices, dim,
                       static_cast<Combining>(combining));
        },
    .backward =
        [](const Grad& g) {
          const auto [dim, size, combining] = unpack<ReducingAttributes>(g.attributes().structure);
          const Tensor &a = g.in(0), indices = g.in(1);
          const bool is_product = static_cast<Combining>(combining) == Combining::product;
          const Tensor slope = is_product ? product_of_others(a, indices, dim, size)
                                          : shares(a, indices, g.out(), dim);
          g.give(0, mul(take_along_dim(g.grad(), indices, dim), slope));
        },
    .saves_in = std::vector<int>{0, 1},
    .saves_out = {0},
    .samples = {{.shapes = {{5, 3}, {5, 3}},
                 .attributes = {.structure = {0, 7, 0}},
                 .dtypes = {f32, i64},
                 .low = -7,
                 .high = 7},
                {.shapes = {{2, 5}, {2, 5}},
                 .attributes = {.structure = {1, 3, 1}},
                 .dtypes = {f32, i32},
                 .low = -3,
                 .high = 3}},
});

Tensor reduce_along_dim(const Tensor& values, const Tensor& indices, int dim, int64_t size,
                        Combining combining) {
  return reduce_along_dim_op(
      {values, indices},
      {.structure = pack_structure(ReducingAttributes{dim, size, static_cast<int>(combining)})});
}

}  // namespace weft
