// SPDX-License-Identifier: Apache-2.0
#include "ops/adds.h"

#include "ops/dims.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/take/take.h"
#include "weft/ops.h"

namespace weft {

/// Adds to a copy of operand 0 in one pass; errors call it `what`. Ranks move no rows: the written
/// dim is whole.
static Op add_into_op(const char* what, const char* name, bool elements,
                      std::vector<OpSample> samples) {
  return register_op({
      .name = name,
      .rule_of =
          [elements](const Attributes& a, std::span<const Shape> shapes) {
            const auto dim = static_cast<int>(a.structure[0]);
            const std::string to = dims_with(shapes[0].ndim(), dim, "[n]");
            const std::string from = dims_with(shapes[0].ndim(), dim, "i");
            return Rule{concat(to, ", ", from, ", ", elements ? from : "i", "-> ", to)};
          },
      .structure = one_dim(),
      .linear = {{0, 1}},
      .forward =
          [what](const Call& c) {
            copy(c.out(), c.in(0));
            const DenseBlock values = DenseBlock::of(c.in(1)), indices = DenseBlock::of(c.in(2));
            const int dim = along_dim(c);
            if (const auto outside =
                    write_along(c.out(), values, indices, dim, WriteMode::accumulate, true)) {
              fail(what, ": index is ", *outside, ", expected one of the ", c.out_shape()[dim],
                   " elements of dim ", dim);
            }
          },
      .backward =
          [elements](const Grad& g) {
            g.give(0, g.grad());
            if (!g.wants(1)) return;
            const int dim = along_dim(g);
            g.give(1, elements ? take_along_dim(g.grad(), g.in(2), dim)
                               : take(g.grad(), g.in(2), dim));
          },
      .saves_in = std::vector<int>{2},
      .samples = std::move(samples),
  });
}

static const Op add_slices_into_op =
    add_into_op("index_add", "add_slices_into", false,
                {sample_with({{2, 3}, {2, 5}, {5}}, {1}, {f32, f32, i32}, -3, 3)});
static const Op add_along_dim_into_op =
    add_into_op("scatter_add", "add_along_dim_into", true,
                {sample_with({{7, 3}, {5, 3}, {5, 3}}, {0}, {f32, f32, i64}, -7, 7)});

bool adds_into(const Tensor& a, const Tensor& values, const Tensor& indices, int dim) {
  const bool is_wide = a.dtype() == f32 || a.dtype() == DType::f64 || a.dtype() == i64;
  return is_wide && values && values.dtype() == a.dtype() && !a.sharding() && !values.sharding() &&
         !indices.sharding() && values.device() == a.device() && values.ndim() == a.ndim() &&
         with_size(values.shape(), dim, a.size(dim)) == a.shape();
}
Tensor add_slices_into(const Tensor& a, const Tensor& values, const Tensor& indices, int dim) {
  return add_slices_into_op({a, values, indices}, {.structure = {dim}});
}
Tensor add_along_dim_into(const Tensor& a, const Tensor& values, const Tensor& indices, int dim) {
  return add_along_dim_into_op({a, values, indices}, {.structure = {dim}});
}

}  // namespace weft
