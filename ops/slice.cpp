// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ops/dims.h"
#include "ops/engine/copied_view.h"
#include "ops/engine/node.h"
#include "ops/engine/route.h"
#include "src/kernels/copy/copy.h"
#include "weft/extend/pattern.h"
#include "weft/extend/views.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"
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

/// Returns which of `count` elements, by index, land in a slice of the whole that they are put in.
static Box landing_in(const SliceAttributes& at, int64_t count, const Box& whole) {
  int64_t begin = whole.offset[at.dim] - at.start, end = begin + whole.shape[at.dim];
  auto index_from = [&](int64_t position) {
    return std::clamp<int64_t>((position + at.step - 1) / at.step, 0, count);
  };
  int64_t first = begin <= 0 ? 0 : index_from(begin), last = end <= 0 ? 0 : index_from(end);
  Box box = whole;
  box.offset[at.dim] = first;
  box.shape[at.dim] = std::max<int64_t>(0, last - first);
  return box;
}

static Box unslice_needs(const Attributes& attributes, int, std::span<const Shape> shapes,
                         const Box& result) {
  const auto at = unpack<SliceAttributes>(attributes.structure);
  return landing_in(at, shapes[0][at.dim], result);
}

/// The places in `to`, which has the elements of `whole`, where those of `part` are put.
static MemoryBlock landing_places(const MemoryBlock& to, const Box& whole, const Box& part,
                                  const SliceAttributes& at) {
  const int64_t first = at.start + part.offset[at.dim] * at.step - whole.offset[at.dim];
  MemoryBlock places = part_along(to, at.dim, first, first + part.shape[at.dim]);
  places.strides[at.dim] *= at.step;
  return places;
}

static const Op put_slice_op({
    .name = "put_slice",
    .rule_of =
        [](const Attributes& attributes, std::span<const Shape> shapes) {
          const int dim = unpack<SliceAttributes>(attributes.structure).dim;
          const int ndim = shapes[0].ndim();
          return Rule{concat(dims_with(ndim, dim, "n"), ", ", dims_with(ndim, dim, "~p"), "->")};
        },
    .takes = {anything()},
    .moves = true,
    .structure = slice_structure(false),
    .linear = {{0, 1}},
    .positions = {{"n"}},
    .forward =
        [](const Call& c) {
          if (c.in(1).numel() == 0) return;
          const auto at = unpack<SliceAttributes>(c.attributes().structure);
          copy(landing_places(c.in(0), c.in_box(0), c.in_box(1), at), c.in(1));
        },
    .needs =
        [](const Attributes& attributes, int, std::span<const Shape>, const Box& written) {
          const auto at = unpack<SliceAttributes>(attributes.structure);
          return landing_in(at, at.size, written);
        },
    .writes = {0},
    .differentiable = false,
});

static const bool slice_puts =
    puts(slice_op, [](const Attributes& attributes, const Tensor& base, const Tensor& part) {
      const bool has_inner = base.is_sharded() && base.sharding().has_inner();
      if (!has_inner) return put_slice_op.call({base, part}, attributes), void();
      // Places of a slice along inner cuts are no box of any rank: the whole tensor is written.
      const Tensor whole = base.redistribute(Placements());
      put_slice_op.call({whole, part}, attributes);
      copy_(base, whole);
    });

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
          if (at.step == 1) {
            const int64_t first =
                at.start + c.in_box(0).offset[at.dim] - c.out_box().offset[at.dim];
            fill(part_along(out, at.dim, 0, first), 0);
            fill(part_along(out, at.dim, first + c.in(0).shape[at.dim], out.shape[at.dim]), 0);
          } else {
            fill(out, 0);
          }
          copy(landing_places(out, c.out_box(), c.in_box(0), at), c.in(0));
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

static const bool flip_puts =
    puts(flip_op, [](const Attributes& attributes, const Tensor& base, const Tensor& part) {
      copy_(base, flip_op({part}, attributes));
    });

Tensor flip(const Tensor& a, const std::vector<int>& dims) {
  const int64_t bits = bits_of_dims("flip", a, dims);
  return bits ? flip_op({a}, {.structure = {bits}}) : a;
}

Tensor turned(const Tensor& a, const std::vector<int>& dims) {
  const Attributes attributes{.structure = {bits_of_dims("flip", a, dims)}};
  Tensor view = flip_op({a}, attributes);
  // The strides that a view in memory would have.
  const TensorBody& given = *a.body();
  Strides strides = given.form       ? given.form->strides
                    : a.is_sharded() ? dense_strides(a.shape())
                                     : given.strides;
  int64_t offset = given.form ? given.form->offset : 0;
  for (int d = 0; d < a.ndim(); ++d) {
    if (!has_dim(attributes, d)) continue;
    offset += (a.size(d) - 1) * strides[d];
    strides[d] = -strides[d];
  }
  view.body()->form = Ref<Form>(new Form(strides, offset));
  CopiedView::attach(view, a, flip_op.shared(), attributes);
  if (view.body()->node) view.body()->node->is_view = true;
  return view;
}

// `unfold`: windows of `size` elements, `step` apart, with the elements in a new last dim.
struct UnfoldAttributes {
  int dim;
  int64_t size, step;
};

static const Op unfold_op = register_op({
    .name = "unfold",
    .rule_of = [](const Attributes& attributes, std::span<const Shape> shapes) -> Rule {
      const auto [dim, size, step] = unpack<UnfoldAttributes>(attributes.structure);
      const int ndim = shapes[0].ndim();
      return {concat(dims_with(ndim, dim, "~d"), "-> ", dims_with(ndim, dim, "+w"), "[+s]"),
              {{"w", (shapes[0][dim] - size) / step + 1}, {"s", size}}};
    },
    .structure = {"dim, size, step",
                  [](const Dims& s, std::span<const Shape> shapes) {
                    return s.ndim() == 3 && is_dim(s[0], shapes[0]) && s[1] >= 1 && s[2] >= 1 &&
                           s[1] <= shapes[0][static_cast<int>(s[0])];
                  }},
    .linear = {{0}},
    .view = [](const Call& c) -> std::optional<View> {
      const auto [dim, size, step] = unpack<UnfoldAttributes>(c.attributes().structure);
      View view{c.in(0).strides};
      view.strides.push_back(view.strides[dim]);
      view.strides[dim] *= step;
      return view;
    },
    .backward =
        [](const Grad& g) {
          const auto [dim, size, step] = unpack<UnfoldAttributes>(g.attributes().structure);
          Tensor sum;
          for (int64_t i = 0; i < size; ++i) {
            const Tensor one = squeeze(slice(g.grad(), -1, i, i + 1), g.grad().ndim() - 1);
            const Tensor placed = unslice(one, {dim, i, g.in_shape(0)[dim], step});
            sum = sum ? add(sum, placed) : placed;
          }
          g.give(0, sum);
        },
    .needs =
        [](const Attributes& attributes, int, std::span<const Shape>, const Box& result) {
          const auto [dim, size, step] = unpack<UnfoldAttributes>(attributes.structure);
          Box box = result;
          box.offset.erase(box.offset.ndim() - 1);
          box.shape.erase(box.shape.ndim() - 1);
          box.offset[dim] *= step;
          if (box.shape[dim]) box.shape[dim] = (box.shape[dim] - 1) * step + size;
          return box;
        },
    .samples = {sample_with({{7, 3}}, {0, 3, 2}), sample_with({{3, 9}}, {1, 2, 4})},
});

Tensor unfolded(const Tensor& a, int dim, int64_t size, int64_t step) {
  step = std::min(step, a.size(dim) - size + 1);
  return unfold_op({a}, {.structure = pack_structure(UnfoldAttributes{dim, size, step})});
}

}  // namespace weft
