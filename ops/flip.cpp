// SPDX-License-Identifier: Apache-2.0
#include "ops/structure.h"
#include "src/kernels/copy/copy.h"
#include "weft/extend/op.h"
#include "weft/ops/shapes.h"

namespace weft {

// The one structural attribute is the set of flipped dims, as bits.

static bool is_flipped(const Attributes& attributes, int dim) {
  return attributes.structure[0] >> dim & 1;
}

static Rule flip_rule(const Attributes& attributes, std::span<const Shape> shapes) {
  std::string in, out;
  std::vector<std::pair<std::string, int64_t>> sizes;
  for (int d = 0; d < shapes[0].ndim(); ++d) {
    const bool flipped = is_flipped(attributes, d);
    in += concat(dim_name(d, flipped ? "~d" : "d"), " ");
    out += concat(dim_name(d, flipped ? "+n" : "d"), " ");
    if (flipped) sizes.emplace_back(dim_name(d, "n"), shapes[0][d]);
  }
  return {in + "-> " + out, std::move(sizes)};
}

/// A slice of the result needs the slice at the same distance from the other end.
static Box flip_needs(const Attributes& attributes, int, std::span<const Shape> shapes,
                      const Box& result) {
  Box box = result;
  for (int d = 0; d < box.shape.ndim(); ++d) {
    if (!is_flipped(attributes, d)) continue;
    box.offset[d] = shapes[0][d] - result.offset[d] - result.shape[d];
  }
  return box;
}

static const Op flip_op = register_op({
    .name = "flip",
    .rule_of = flip_rule,
    .moves = true,
    .structure = set_of_dims(),
    .linear = {{0}},
    .forward =
        [](const Call& c) {
          if (c.out().numel() == 0) return;
          MemoryBlock flipped = c.in(0);
          int64_t offset = 0;
          for (int d = 0; d < flipped.shape.ndim(); ++d) {
            if (!is_flipped(c.attributes(), d)) continue;
            offset += (flipped.shape[d] - 1) * flipped.strides[d];
            flipped.strides[d] = -flipped.strides[d];
          }
          flipped.data = flipped.as<char>() + offset * static_cast<int64_t>(size_of(flipped.dtype));
          copy(c.out(), flipped);
        },
    .backward = [](const Grad& g) { g.give(0, flip_op, {g.grad()}, g.attributes()); },
    .needs = flip_needs,
    .saves_in = std::vector<int>{},
    .samples = {{.shapes = {{5, 7}}, .attributes = {.structure = {1}}},
                {.shapes = {{5, 3, 2}}, .attributes = {.structure = {6}}},
                {.shapes = {{5, 2}}, .attributes = {.structure = {3}}, .dtypes = {i64}}},
});

Tensor flip(const Tensor& a, const std::vector<int>& dims) {
  const int64_t bits = bits_of_dims("flip", a, dims);
  return bits ? flip_op({a}, {.structure = {bits}}) : a;
}

}  // namespace weft
