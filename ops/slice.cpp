// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <range/v3/view/chunk.hpp>

#include "ops/dims.h"
#include "ops/engine/route.h"
#include "ops/promotion.h"
#include "src/kernels/copy/copy.h"
#include "weft/extend/pattern.h"
#include "weft/ops/shapes.h"

namespace weft {

// Both ops have the structure SliceAttributes. `slice` takes `size` elements from `start`
// on; `unslice` puts its operand there, in a result of `size` elements with zeros elsewhere.

struct SliceAttributes {
  int dim;
  int64_t start, size, step;
};

static Rule fetched_rule(const Attributes& attributes, std::span<const Shape> shapes) {
  const auto at = unpack<SliceAttributes>(attributes.structure);
  const int ndim = shapes[0].ndim();
  return {concat(dims_with(ndim, at.dim, dim_name(at.dim, "~d")), "-> ",
                 dims_with(ndim, at.dim, dim_name(at.dim, "+n"))),
          {{dim_name(at.dim, "n"), at.size}}};
}

static Box slice_needs(const Attributes& attributes, int, std::span<const Shape>,
                       const Box& result) {
  const auto [dim, start, size, step] = unpack<SliceAttributes>(attributes.structure);
  Box box = result;
  box.offset[dim] = start + result.offset[dim] * step;
  box.shape[dim] = result.shape[dim] ? (result.shape[dim] - 1) * step + 1 : 0;
  return box;
}

static Tensor unslice(const Tensor& a, const SliceAttributes& at);

/// The slice must lie within the operand; the operand of `unslice` within the result.
static Structure slice_structure(bool unslices) {
  return {"dim, start, size, step", [unslices](const Dims& s, std::span<const Shape> shapes) {
            if (s.ndim() != 4 || !is_dim(s[0], shapes[0])) return false;
            const auto at = unpack<SliceAttributes>(s);
            const int64_t own = shapes[0][at.dim];
            return unslices ? lies_within(at.start, own, at.step, at.size)
                            : lies_within(at.start, at.size, at.step, own);
          }};
}

static const Op slice_op = register_op({
    .name = "slice",
    .rule_of = fetched_rule,
    .structure = slice_structure(false),
    .linear = {{0}},
    .view = [](const Call& c) -> std::optional<View> {
      View view{c.in(0).strides};
      const auto at = unpack<SliceAttributes>(c.attributes().structure);
      view.strides[at.dim] *= at.step;
      return view;
    },
    .backward =
        [](const Grad& g) {
          const auto at = unpack<SliceAttributes>(g.attributes().structure);
          g.give(0, unslice(g.grad(), {at.dim, at.start, g.in_shape(0)[at.dim], at.step}));
        },
    .needs = slice_needs,
    .samples = {sample_with({{7, 5}}, {0, 2, 4, 1}), sample_with({{7, 5}}, {0, 1, 3, 2}),
                sample_with({{5, 9, 3}}, {1, 0, 2, 4})},
});

/// Returns the elements of the operand, by index, that land in a slice of the result.
static Box unslice_needs(const Attributes& attributes, int, std::span<const Shape> shapes,
                         const Box& result) {
  const auto at = unpack<SliceAttributes>(attributes.structure);
  const int dim = at.dim;
  int64_t begin = result.offset[dim] - at.start, end = begin + result.shape[dim];
  auto index_from = [&](int64_t position) {
    return std::clamp<int64_t>((position + at.step - 1) / at.step, 0, shapes[0][dim]);
  };
  int64_t first = begin <= 0 ? 0 : index_from(begin), last = end <= 0 ? 0 : index_from(end);
  Box box = result;
  box.offset[dim] = first;
  box.shape[dim] = std::max<int64_t>(0, last - first);
  return box;
}

static const Op unslice_op = register_op({
    .name = "unslice",
    .rule_of = fetched_rule,
    .moves = true,
    .structure = slice_structure(true),
    .linear = {{0}},
    .forward =
        [](const Call& c) {
          const auto at = unpack<SliceAttributes>(c.attributes().structure);
          const MemoryBlock& out = c.out();
          if (c.in(0).numel() == 0) return fill(out, 0);
          const int64_t first =
              at.start + c.in_box(0).offset[at.dim] * at.step - c.out_box().offset[at.dim];
          const int64_t end = first + c.in(0).shape[at.dim];
          if (at.step == 1) {
            fill(part_along(out, at.dim, 0, first), 0);
            fill(part_along(out, at.dim, end, out.shape[at.dim]), 0);
          } else {
            fill(out, 0);
          }
          MemoryBlock place = part_along(out, at.dim, first, end);
          place.strides[at.dim] *= at.step;
          copy(place, c.in(0));
        },
    .backward =
        [](const Grad& g) {
          const auto at = unpack<SliceAttributes>(g.attributes().structure);
          const int64_t size = g.in_shape(0)[at.dim];
          const int64_t stop = at.start + (size ? (size - 1) * at.step + 1 : 0);
          g.give(0, slice(g.grad(), at.dim, at.start, stop, at.step));
        },
    .needs = unslice_needs,
    .samples = {sample_with({{4, 5}}, {0, 2, 7, 1}), sample_with({{3, 5}}, {0, 1, 7, 2})},
});

static Tensor unslice(const Tensor& a, const SliceAttributes& at) {
  return unslice_op({a}, {.structure = pack_structure(at)});
}

/// Clamps a position, which may count from the end, to the dim.
static int64_t clamped(int64_t position, int64_t size) {
  return std::clamp<int64_t>(position < 0 ? position + size : position, 0, size);
}

Tensor slice(const Tensor& a, int dim, int64_t start, int64_t stop, int64_t step) {
  if (!a) fail("slice: no tensor is given, expected one");
  if (step < 1) fail("slice: step must be at least 1, got ", step);
  int at = normalized_dim("slice", dim, a.ndim());
  int64_t first = clamped(start, a.size(at)), last = clamped(stop, a.size(at));
  step = std::min(step, std::max<int64_t>(last - first, 1));
  int64_t size = last > first ? (last - first + step - 1) / step : 0;
  if (first == 0 && size == a.size(at)) return a;
  return slice_op({a}, {.structure = pack_structure(SliceAttributes{at, first, size, step})});
}

Tensor pad(const Tensor& a, int dim, int64_t before, int64_t after) {
  const int at = checked_dim("pad", a, dim);
  if (before < 0 || after < 0)
    fail("pad: before and after are ", before, " and ", after, ", expected at least 0");
  return unslice(a, {at, before, before + a.size(at) + after, 1});
}

static Rule flip_rule(const Attributes& attributes, std::span<const Shape> shapes) {
  std::string in, out;
  std::vector<std::pair<std::string, int64_t>> sizes;
  for (int d = 0; d < shapes[0].ndim(); ++d) {
    const bool flipped = has_dim(attributes, d);
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
    if (!has_dim(attributes, d)) continue;
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
            if (!has_dim(c.attributes(), d)) continue;
            offset += (flipped.shape[d] - 1) * flipped.strides[d];
            flipped.strides[d] = -flipped.strides[d];
          }
          flipped.data = element_at(flipped.data, offset, flipped.dtype);
          copy(c.out(), flipped);
        },
    .backward = [](const Grad& g) { g.give(0, flip_op, {g.grad()}, g.attributes()); },
    .needs = flip_needs,
    .samples = {sample_with({{5, 7}}, {1}), sample_with({{5, 3, 2}}, {6}),
                sample_with({{5, 2}}, {3}, {i64})},
});

Tensor flip(const Tensor& a, const std::vector<int>& dims) {
  const int64_t bits = bits_of_dims("flip", a, dims);
  return bits ? flip_op({a}, {.structure = {bits}}) : a;
}

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
