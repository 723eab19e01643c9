// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <set>

#include "ops/dims.h"
#include "ops/promotion.h"
#include "src/kernels/copy/copy.h"
#include "weft/extend/views.h"
#include "weft/ops/factories.h"
#include "weft/ops/shapes.h"

namespace weft {

namespace {

/// Writes the rule of one reshape: runs of dims with equal products correspond to each other.
class ReshapeRule {
 public:
  ReshapeRule(const Shape& from, const Shape& to) : from_(from), to_(to) {}

  Rule make() {
    if (from_.product() == 0) {
      for (int i = 0; i < from_.ndim(); ++i) in_ += concat("[", dim_name(i, "i"), "] ");
      for (int j = 0; j < to_.ndim(); ++j) create(j);
    } else {
      for (int i = 0, j = 0; i < from_.ndim() || j < to_.ndim();) next_run(i, j);
    }
    return {concat(array_text(in_), " -> ", array_text(out_)), std::move(sizes_)};
  }

 private:
  void create(int j) {
    out_ += concat("[+", dim_name(j, "o"), "] ");
    sizes_.emplace_back(dim_name(j, "o"), to_[j]);
  }

  void next_run(int& i, int& j) {
    if (i < from_.ndim() && from_[i] == 1) {
      in_ += concat("[", dim_name(i++, "i"), "] ");
    } else if (j < to_.ndim() && to_[j] == 1) {
      create(j++);
    } else {
      add_run(i, j);
    }
  }

  /// Divides the dims of a run into the factors that both sides have in common: "a (b c) -> (a b)
  /// c". Where there are none, as of [4, 6] and [3, 8], its dims are whole.
  void add_run(int& i, int& j) {
    const int first_i = i, first_j = j;
    int64_t in = from_[i++], out = to_[j++];
    std::set<int64_t> ends = {in, out};
    while (in != out) ends.insert(in < out ? in *= from_[i++] : out *= to_[j++]);
    int64_t before = 1;
    for (const int64_t end : ends) {
      if (end % before != 0) return add_whole(first_i, i, first_j, j);
      sizes_.emplace_back(dim_name(factors_++, "f"), end / before);
      before = end;
    }
    const int first = factors_ - static_cast<int>(ends.size());
    add_factors(from_, first_i, i, ends, first, in_);
    add_factors(to_, first_j, j, ends, first, out_);
  }

  void add_whole(int first_i, int last_i, int first_j, int last_j) {
    for (int k = first_i; k < last_i; ++k) in_ += concat("[", dim_name(k, "i"), "] ");
    for (int k = first_j; k < last_j; ++k) create(k);
  }

  /// Adds the dims of one side of a run, by the ends of its factors, which are numbered from
  /// `factor` on. A dim of size 1 has none.
  void add_factors(const Shape& shape, int first, int last, const std::set<int64_t>& ends,
                   int factor, std::string& text) {
    auto end = ends.begin();
    int64_t size = 1;
    for (int k = first; k < last; ++k) {
      size *= shape[k];
      std::string names;
      const auto begin = end;
      for (; end != ends.end() && *end <= size; ++end) names += dim_name(factor++, "f") + " ";
      if (begin == end) {
        if (&text == &out_) create(k);
        if (&text == &in_) in_ += concat("[", dim_name(k, "i"), "] ");
      } else {
        text += std::next(begin) == end ? names : concat("(", names, ") ");
      }
    }
  }

  const Shape& from_;
  const Shape& to_;
  std::string in_, out_;
  int factors_ = 0;
  std::vector<std::pair<std::string, int64_t>> sizes_;
};

}  // namespace

/// Returns the strides of `block` viewed as `to`, if its memory allows it; dims of size 1 have any.
static std::optional<Strides> viewed_strides(const MemoryBlock& block, const Shape& to) {
  Strides strides = dense_strides(to);
  if (block.is_dense() || block.numel() == 0) return strides;
  int i = block.shape.ndim() - 1, j = to.ndim() - 1;
  while (i >= 0) {
    if (block.shape[i] == 1) {
      --i;
      continue;
    }
    int64_t stride = block.strides[i], run = block.shape[i];
    while (i > 0 && (block.shape[i - 1] == 1 || block.strides[i - 1] == stride * run)) {
      if (block.shape[i - 1] != 1) run *= block.shape[i - 1];
      --i;
    }
    int64_t covered = 1;
    while (j >= 0 && covered < run) {
      strides[j] = stride * covered;
      covered *= to[j--];
    }
    if (covered != run) return std::nullopt;
    --i;
  }
  return strides;
}

/// Counts in double, since the int64 product of a shape that overflows could seem to fit.
static bool fits_reshape(const Dims& to, std::span<const Shape> shapes) {
  double elements = 1;
  for (int64_t size : to) elements *= static_cast<double>(size);
  return are_sizes(to) && elements < 0x1p62 && to.product() == shapes[0].product();
}

static const Op reshape_op = register_op({
    .name = "reshape",
    .rule_of =
        [](const Attributes& attributes, std::span<const Shape> shapes) {
          return ReshapeRule(shapes[0], attributes.structure).make();
        },
    .structure = {"a shape of as many elements", fits_reshape},
    .linear = {{0}},
    .forward =
        [](const Call& c) {
          const MemoryBlock& in = c.in(0);
          copy(dense_block(c.out().data, in.dtype, in.shape, in.device), in);
        },
    .view = [](const Call& c) -> std::optional<View> {
      auto strides = viewed_strides(c.in(0), c.out_box().shape);
      if (!strides) return std::nullopt;
      return View{*strides};
    },
    .backward = [](const Grad& g) { g.give(0, reshape(g.grad(), g.in_shape(0))); },
    .samples = {sample_with({{5, 6, 7}}, {5, 42}), sample_with({{5, 12}}, {5, 4, 3}),
                sample_with({{8, 3}}, {4, 1, 2, 3}), sample_with({{4, 6}}, {3, 8})},
});

static const bool reshape_puts =
    puts(reshape_op, [](const Attributes&, const Tensor& base, const Tensor& part) {
      copy_(base, reshape(part, base.shape()));
    });

Tensor reshape(const Tensor& a, const Shape& shape) {
  if (!a) fail("reshape: no tensor is given, expected one");
  for (int64_t size : shape) {
    if (size < 0)
      fail("reshape: shape is ", shape, ", expected sizes of at least 0; they are never inferred");
  }
  double elements = 1;  // the product may overflow
  for (int64_t size : shape) elements *= static_cast<double>(size);
  const bool fits = elements < 0x1p63;
  const int64_t count = fits && elements > 0 ? shape.product() : 0;
  if (!fits || count != a.numel()) {
    fail("reshape: number of elements of ", shape, " is ", fits ? concat(count) : concat(elements),
         ", expected ", a.numel(), ", that of ", a.shape());
  }
  if (shape == a.shape()) return a;
  return reshape_op({a}, {.structure = shape});
}

Tensor squeeze(const Tensor& a, int dim) {
  const int at = checked_dim("squeeze", a, dim);
  if (a.size(at) != 1)
    fail("squeeze: size of dim ", at, " of ", a.shape(), " is ", a.size(at), ", expected 1");
  Shape shape = a.shape();
  shape.erase(at);
  return reshape(a, shape);
}

Tensor unsqueeze(const Tensor& a, int dim) {
  if (!a) fail("unsqueeze: no tensor is given, expected one");
  Shape shape = a.shape();
  shape.insert(normalized_dim("unsqueeze", dim, a.ndim() + 1), 1);
  return reshape(a, shape);
}

Tensor Tensor::reshape(const Shape& shape) const { return weft::reshape(*this, shape); }

Tensor Tensor::operator[](std::initializer_list<int64_t> indices) const {
  check_tensor("operator[]", *this);
  if (static_cast<int64_t>(indices.size()) > ndim()) {
    fail("index: number of indices is ", indices.size(), ", expected at most ", ndim(),
         ", the dims of ", shape());
  }
  Tensor part = *this;
  for (int64_t index : indices) {
    const int64_t size = part.size(0), from = index < 0 ? index + size : index;
    if (from < 0 || from >= size) {
      fail("index: it is ", index, ", expected one of the ", size, " elements of dim ",
           ndim() - part.ndim(), " of ", shape());
    }
    part = squeeze(slice(part, 0, from, from + 1), 0);
  }
  return part;
}

static Rule permute_rule(const Attributes& attributes, std::span<const Shape> shapes) {
  std::string in, out;
  for (int d = 0; d < shapes[0].ndim(); ++d) in += dim_name(d) + " ";
  for (int64_t dim : attributes.structure) out += dim_name(static_cast<int>(dim)) + " ";
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
        [](const Grad& g) { g.give(0, permute(g.grad(), inverse_of(g.attributes().structure))); },
    .samples = {sample_with({{5, 7}}, {1, 0}), sample_with({{5, 3, 7}}, {2, 0, 1})},
});

static const bool permute_puts =
    puts(permute_op, [](const Attributes& attributes, const Tensor& base, const Tensor& part) {
      copy_(base, permute(part, inverse_of(attributes.structure)));
    });

Tensor permute(const Tensor& a, const std::vector<int>& dims) {
  if (!a) fail("permute: no tensor is given, expected one");
  if (static_cast<int>(dims.size()) != a.ndim()) {
    fail("permute: number of dims is ", dims.size(), ", expected ", a.ndim(), ", those of ",
         a.shape());
  }
  Dims order;
  bits_of_dims("permute", a, dims);
  for (int dim : dims) order.push_back(normalized_dim("permute", dim, a.ndim()));
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

static Rule expand_rule(const Attributes& attributes, std::span<const Shape> shapes) {
  const Shape& to = attributes.structure;
  int added = to.ndim() - shapes[0].ndim();
  std::string in, out;
  std::vector<std::pair<std::string, int64_t>> sizes;
  for (int d = 0; d < to.ndim(); ++d) {
    bool kept = d >= added && shapes[0][d - added] == to[d];
    if (d >= added) in += kept ? concat(dim_name(d), " ") : concat("[", dim_name(d, "one"), "] ");
    out += concat(kept ? "" : "+", dim_name(d), " ");
    if (!kept) sizes.emplace_back(dim_name(d), to[d]);
  }
  return {concat(array_text(in), " -> ", array_text(out)), std::move(sizes)};
}

static bool fits_expand(const Dims& to, std::span<const Shape> shapes) {
  return are_sizes(to) && broadcasts_to(shapes[0], to);
}

static const Op expand_op = register_op({
    .name = "expand",
    .rule_of = expand_rule,
    .structure = {"shape to broadcast to", fits_expand},
    .linear = {{0}},
    .view = [](const Call& c) -> std::optional<View> {
      const Shape& to = c.out_shape();
      int added = to.ndim() - c.in_shape(0).ndim();
      View view;
      for (int d = 0; d < to.ndim(); ++d) {
        bool kept = d >= added && c.in_shape(0)[d - added] == to[d];
        view.strides.push_back(kept ? c.in(0).strides[d - added] : 0);
      }
      return view;
    },
    .backward = [](const Grad& g) { g.give(0, g.grad()); },
    .samples = {sample_with({{5, 1}}, {5, 7}), sample_with({{1, 3}}, {2, 5, 3})},
});

Tensor expand(const Tensor& a, const Shape& shape) {
  if (!a) fail("expand: no tensor is given, expected one");
  if (!broadcasts_to(a.shape(), shape)) {
    fail("expand: the tensor is ", a.shape(), ", expected one that broadcasts to ", shape);
  }
  if (shape == a.shape()) return a;
  return expand_op({a}, {.structure = shape});
}

// The diagonal of the last two dims that begins at row `row` and column `column`.
struct DiagonalAttributes {
  int64_t row, column, size;
};

/// Puts the last dim of `a` on that diagonal of matrices, with `base` elsewhere.
static Tensor on_diagonal(const Tensor& a, const Tensor& base, const DiagonalAttributes& at,
                          const Shape& shape) {
  const int64_t rows = shape[shape.ndim() - 2], columns = shape[shape.ndim() - 1];
  const Tensor padded = pad(a, -1, at.row, rows - at.row - at.size);
  const Tensor mask = eye(rows, columns, at.column - at.row, options_next_to(a, DType::boolean));
  return where(mask, unsqueeze(padded, -1), base);
}

static const Op diagonal_op = register_op({
    .name = "diagonal",
    .rule_of = [](const Attributes& attributes, std::span<const Shape> shapes) -> Rule {
      std::string dims;
      for (int d = 0; d < shapes[0].ndim() - 2; ++d) dims += dim_name(d) + " ";
      const auto at = unpack<DiagonalAttributes>(attributes.structure);
      return {concat(dims, "~r ~c -> ", dims, "+n"), {{"n", at.size}}};
    },
    .structure = {"row, column, size",
                  [](const Dims& s, std::span<const Shape> shapes) {
                    const int ndim = shapes[0].ndim();
                    return s.ndim() == 3 && ndim >= 2 &&
                           lies_within(s[0], s[2], 1, shapes[0][ndim - 2]) &&
                           lies_within(s[1], s[2], 1, shapes[0][ndim - 1]);
                  }},
    .linear = {{0}},
    .view = [](const Call& c) -> std::optional<View> {
      View view{c.in(0).strides};
      const int last = view.strides.ndim() - 1;
      view.strides[last - 1] += view.strides[last];
      view.strides.erase(last);
      return view;
    },
    .backward =
        [](const Grad& g) {
          const auto at = unpack<DiagonalAttributes>(g.attributes().structure);
          g.give(0, on_diagonal(g.grad(), next_to(g.grad(), 0), at, g.in_shape(0)));
        },
    .needs =
        [](const Attributes& attributes, int, std::span<const Shape>, const Box& result) {
          const auto at = unpack<DiagonalAttributes>(attributes.structure);
          Box box = result;
          const int last = result.shape.ndim() - 1;
          box.offset[last] += at.row;
          box.offset.push_back(result.offset[last] + at.column);
          box.shape.push_back(result.shape[last]);
          return box;
        },
    .samples = {sample_with({{5, 7}}, {0, 2, 4}), sample_with({{2, 7, 5}}, {3, 0, 4})},
});

static const bool diagonal_puts =
    puts(diagonal_op, [](const Attributes& attributes, const Tensor& base, const Tensor& part) {
      const auto at = unpack<DiagonalAttributes>(attributes.structure);
      copy_(base, on_diagonal(part, base, at, base.shape()));
    });

Tensor diagonal(const Tensor& a, int64_t offset) {
  check_tensor("diagonal", a);
  if (a.ndim() < 2) fail("diagonal: the tensor is ", a.shape(), ", expected at least two dims");
  const int64_t rows = a.size(-2), columns = a.size(-1);
  const int64_t row = std::clamp<int64_t>(-offset, 0, rows);
  const int64_t column = std::clamp<int64_t>(offset, 0, columns);
  const int64_t size = std::min(rows - row, columns - column);
  return diagonal_op({a}, {.structure = {row, column, size}});
}

}  // namespace weft
