// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <range/v3/view/chunk.hpp>

#include "ops/dims.h"
#include "ops/engine/route.h"
#include "ops/promotion.h"
#include "src/kernels/copy/copy.h"
#include "weft/ops/shapes.h"

namespace weft {

static Rule cat_rule(const Attributes& attributes, std::span<const Shape> shapes) {
  const int dim = static_cast<int>(attributes.structure[0]), ndim = shapes[0].ndim();
  std::string in;
  int64_t total = 0;
  for (size_t i = 0; i < shapes.size(); ++i) {
    in += concat(i ? ", " : "", dims_with(ndim, dim, dim_name(static_cast<int>(i), "~p")));
    total += shapes[i][dim];
  }
  return {concat(in, "-> ", dims_with(ndim, dim, "+n")), {{"n", total}}};
}

static Box cat_needs(const Attributes& attributes, int operand, std::span<const Shape> shapes,
                     const Box& result) {
  int dim = static_cast<int>(attributes.structure[0]);
  Box shifted = result;
  for (const Shape& before : shapes.first(static_cast<size_t>(operand))) {
    shifted.offset[dim] -= before[dim];
  }
  const Shape& shape = shapes[static_cast<size_t>(operand)];
  return overlap({Dims::filled(shape.ndim(), 0), shape}, shifted);
}

static void cat_forward(const Call& c) {
  int dim = static_cast<int>(c.attribute(0));
  int64_t start = 0;
  for (int i = 0; i < c.operands(); ++i) {
    const int64_t first = start + c.in_box(i).offset[dim] - c.out_box().offset[dim];
    const MemoryBlock& in = c.in(i);
    if (in.numel()) copy(part_along(c.out(), dim, first, first + in.shape[dim]), in);
    start += c.in_shape(i)[dim];
  }
}

static std::vector<int> all_operands() {
  std::vector<int> operands(kMaxOperands);
  std::iota(operands.begin(), operands.end(), 0);
  return operands;
}

static bool fits_cat(const Dims& structure, std::span<const Shape> shapes) {
  return structure.ndim() == 1 && is_dim(structure[0], shapes[0]) &&
         std::all_of(shapes.begin(), shapes.end(),
                     [&](const Shape& shape) { return shape.ndim() == shapes[0].ndim(); });
}

static const Op cat_op = register_op({
    .name = "cat",
    .rule_of = cat_rule,
    .moves = true,
    .structure = {"dim", fits_cat},
    .linear = {all_operands()},
    .forward = cat_forward,
    .backward =
        [](const Grad& g) {
          int dim = static_cast<int>(g.attribute(0));
          int64_t start = 0;
          for (int i = 0; i < g.operands(); ++i) {
            int64_t size = g.in_shape(i)[dim];
            if (g.wants(i)) g.give(i, slice(g.grad(), dim, start, start + size));
            start += size;
          }
        },
    .needs = cat_needs,
    .samples = {sample_with({{5, 3}, {2, 3}}, {0}), sample_with({{5, 3}, {5, 1}, {5, 7}}, {1})},
});

static void check_cat(const Tensors& tensors, int dim) {
  for (size_t i = 1; i < tensors.size(); ++i) {
    const Shape &first = tensors[0].shape(), &shape = tensors[i].shape();
    if (shape.ndim() == first.ndim() && with_size(shape, dim, first[dim]) == first) continue;
    fail("cat: tensor ", i, " is ", shape, ", expected ", first, ", as tensor 0, except in dim ",
         dim);
  }
}

Tensor cat(const Tensors& tensors, int dim) {
  if (tensors.empty()) fail("cat: number of tensors is 0, expected at least 1");
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i]) fail("cat: tensor ", i, " is empty, expected a tensor");
  }
  int at = normalized_dim("cat", dim, tensors[0].ndim());
  check_cat(tensors, at);
  if (tensors.size() == 1) return clone(tensors[0]);
  DType dtype = tensors[0].dtype();
  for (const Tensor& tensor : tensors) dtype = promote(dtype, tensor.dtype());
  Tensors parts;
  for (const Tensor& tensor : tensors) parts.push_back(as_dtype(tensor, dtype));
  while (parts.size() > kMaxOperands) {
    Tensors fewer;
    for (auto some : ranges::views::chunk(parts, kMaxOperands)) {
      fewer.push_back(cat(Tensors(some.begin(), some.end()), at));
    }
    parts = std::move(fewer);
  }
  return cat_op(parts, {.structure = {at}});
}

}  // namespace weft
