// SPDX-License-Identifier: Apache-2.0
#include "ops/pads.h"

#include <algorithm>

#include "ops/dims.h"
#include "src/kernels/copy/copy.h"
#include "weft/extend/views.h"
#include "weft/ops/shapes.h"

namespace weft {

/// structure: for each dim, the zeros before the operand and the size of the result.
static const Op pad_dims_op = register_op({
    .name = "pad_dims",
    .rule_of =
        [](const Attributes& attributes, std::span<const Shape> shapes) {
          std::string in, out;
          std::vector<std::pair<std::string, int64_t>> sizes;
          for (int d = 0; d < shapes[0].ndim(); ++d) {
            const int64_t size = attributes.structure[2 * d + 1];
            const bool pads = size != shapes[0][d];
            in += concat(dim_name(d, pads ? "~d" : "d"), " ");
            out += concat(dim_name(d, pads ? "+n" : "d"), " ");
            if (pads) sizes.emplace_back(dim_name(d, "n"), size);
          }
          return Rule{in + "-> " + out, std::move(sizes)};
        },
    .moves = true,
    .structure = {"before and size of each dim",
                  [](const Dims& s, std::span<const Shape> shapes) {
                    bool fits = s.ndim() == 2 * shapes[0].ndim();
                    for (int d = 0; fits && d < shapes[0].ndim(); ++d)
                      fits = lies_within(s[2 * d], shapes[0][d], 1, s[2 * d + 1]);
                    return fits;
                  }},
    .linear = {{0}},
    .forward =
        [](const Call& c) {
          MemoryBlock inside = c.out();
          if (c.in(0).numel() == 0) return fill(inside, 0);
          for (int d = 0; d < inside.shape.ndim(); ++d) {
            const int64_t first =
                c.attribute(2 * d) + c.in_box(0).offset[d] - c.out_box().offset[d];
            const int64_t last = first + c.in(0).shape[d];
            fill(part_along(inside, d, 0, first), 0);
            fill(part_along(inside, d, last, inside.shape[d]), 0);
            inside = part_along(inside, d, first, last);
          }
          copy(inside, c.in(0));
        },
    .backward =
        [](const Grad& g) {
          Tensor inside = g.grad();
          for (int d = 0; d < g.in_shape(0).ndim(); ++d) {
            const int64_t before = g.attribute(2 * d);
            inside = slice(inside, d, before, before + g.in_shape(0)[d]);
          }
          g.give(0, inside);
        },
    .needs =
        [](const Attributes& attributes, int, std::span<const Shape> shapes, const Box& result) {
          Box box = result;
          for (int d = 0; d < box.shape.ndim(); ++d) {
            const int64_t begin = result.offset[d] - attributes.structure[2 * d];
            const int64_t last = std::clamp<int64_t>(begin + result.shape[d], 0, shapes[0][d]);
            box.offset[d] = std::clamp<int64_t>(begin, 0, shapes[0][d]);
            box.shape[d] = last - box.offset[d];
          }
          return box;
        },
    .samples = {sample_with({{4, 5}}, {1, 7, 2, 7}), sample_with({{3, 5}}, {0, 3, 0, 7})},
});

Tensor pad_dims(const Tensor& a, const std::vector<int64_t>& before_and_size) {
  return pad_dims_op({a}, {.structure = Dims(std::span<const int64_t>(before_and_size))});
}

}  // namespace weft
