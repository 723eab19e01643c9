// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ops/dims.h"
#include "ops/pads.h"
#include "ops/promotion.h"
#include "src/base/parallel.h"
#include "src/kernels/rows/rows.h"
#include "weft/extend/views.h"
#include "weft/ops.h"

#ifdef WEFT_WITH_CUDA
#include "src/device/kernel/launch.h"
#endif

namespace weft {

static Shape shape_of(const Tensor& tensor) { return tensor.shape(); }

static void check_all(const char* what, const Tensors& tensors) {
  for (const Tensor& tensor : tensors) check_tensor(what, tensor);
}

/// Views of operands become copies, as results of these functions are.
static Tensor apart_from(const Tensor& a, const Tensor& result) {
  return is_view_of(result, a) ? clone(result) : result;
}

Tensor flatten(const Tensor& a, int first, int last) {
  check_tensor("flatten", a);
  const int dims = std::max(1, a.ndim());
  const int from = normalized_dim("flatten", first, dims);
  const int to = normalized_dim("flatten", last, dims);
  if (from > to) fail("flatten: the last dim is ", to, ", expected at least ", from);
  Shape shape = a.ndim() > 0 ? a.shape() : Shape{1};
  for (int d = to; d > from; --d) {
    shape[d - 1] *= shape[d];
    shape.erase(d);
  }
  return reshape(a, shape);
}

Tensor matrix_transpose(const Tensor& a) {
  check_tensor("matrix_transpose", a);
  if (a.ndim() < 2) {
    fail("matrix_transpose: the tensor is ", a.shape(), ", expected at least two dims");
  }
  return transpose(a, -2, -1);
}

Tensor moveaxis(const Tensor& a, const std::vector<int>& from, const std::vector<int>& to) {
  const std::vector<int> sources = distinct_dims("moveaxis", a, from);
  const std::vector<int> places = distinct_dims("moveaxis", a, to);
  if (sources.size() != places.size()) {
    fail("moveaxis: the number of places is ", places.size(), ", expected ", sources.size(),
         " as of dims");
  }
  std::vector<int> order(static_cast<size_t>(a.ndim()), -1);
  for (size_t i = 0; i < places.size(); ++i) order[static_cast<size_t>(places[i])] = sources[i];
  int next = 0;
  for (int& dim : order) {
    if (dim >= 0) continue;
    while (std::find(sources.begin(), sources.end(), next) != sources.end()) ++next;
    dim = next++;
  }
  return permute(a, order);
}

Tensors broadcast_tensors(const Tensors& tensors) {
  check_all("broadcast_tensors", tensors);
  int ndim = 0;
  for (const Tensor& tensor : tensors) ndim = std::max(ndim, tensor.ndim());
  Shape shape = Shape::filled(ndim, 1);
  for (const Tensor& tensor : tensors) {
    for (int d = ndim - tensor.ndim(); d < ndim; ++d) {
      const int64_t size = tensor.size(d - ndim);
      if (shape[d] == 1) shape[d] = size;
      if (size == 1 || size == shape[d]) continue;
      fail("broadcast_tensors: the shapes are ", listed(tensors, shape_of), ", expected ones that ",
           "broadcast to one shape");
    }
  }
  Tensors results;
  for (const Tensor& tensor : tensors) results.push_back(expand(tensor, shape));
  return results;
}

Tensors meshgrid(const Tensors& tensors, std::string_view indexing) {
  check_all("meshgrid", tensors);
  if (indexing != "xy" && indexing != "ij") {
    fail("meshgrid: indexing is '", indexing, "', expected 'xy' or 'ij'");
  }
  Tensors views;
  const int ndim = static_cast<int>(tensors.size());
  for (int i = 0; i < ndim; ++i) {
    const Tensor& tensor = tensors[static_cast<size_t>(i)];
    if (tensor.ndim() != 1) {
      fail("meshgrid: tensor ", i, " is ", tensor.shape(), ", expected one dim");
    }
    const int dim = indexing == "xy" && ndim > 1 && i < 2 ? 1 - i : i;
    views.push_back(reshape(tensor, ones_but(ndim, dim, tensor.numel())));
  }
  return broadcast_tensors(views);
}

Tensor stack(const Tensors& tensors, int dim) {
  check_all("stack", tensors);
  Tensors parts;
  for (const Tensor& tensor : tensors) {
    if (!(tensor.shape() == tensors[0].shape())) {
      fail("stack: the shapes are ", listed(tensors, shape_of), ", expected equal ones");
    }
    parts.push_back(unsqueeze(tensor, dim));
  }
  return cat(parts, dim);
}

Tensors unstack(const Tensor& a, int dim) {
  const int at = checked_dim("unstack", a, dim);
  Tensors slices;
  for (int64_t i = 0; i < a.size(at); ++i) slices.push_back(squeeze(slice(a, at, i, i + 1), at));
  return slices;
}

/// Repeats each slice of dim `dim` `count` times in a row.
static Tensor repeated(const Tensor& a, int64_t count, int dim) {
  Shape many = a.shape(), shape = a.shape();
  many.insert(dim + 1, count);
  shape[dim] *= count;
  return reshape(expand(unsqueeze(a, dim + 1), many), shape);
}

static void check_count(const char* what, int64_t count) {
  if (count < 0) fail(what, ": a count is ", count, ", expected at least 0");
}

Tensor repeat(const Tensor& a, int64_t count, std::optional<int> dim) {
  check_tensor("repeat", a);
  check_count("repeat", count);
  const Tensor x = dim ? a : reshape(a, {a.numel()});
  return apart_from(a, repeated(x, count, normalized_dim("repeat", dim.value_or(0), x.ndim())));
}

Tensor repeat(const Tensor& a, const Tensor& counts, std::optional<int> dim) {
  check_tensor("repeat", a, counts);
  const std::vector<int64_t> given = counts.detach().full_tensor().to_vector<int64_t>();
  if (given.size() == 1) return repeat(a, given[0], dim);
  const Tensor x = dim ? a : reshape(a, {a.numel()});
  const int at = normalized_dim("repeat", dim.value_or(0), x.ndim());
  if (!(counts.shape() == Shape{x.size(at)})) {
    fail("repeat: ", counts.shape(), " counts, expected [", x.size(at), "], the elements of dim ",
         at);
  }
  std::vector<double> indices;
  for (size_t i = 0; i < given.size(); ++i) {
    check_count("repeat", given[i]);
    indices.insert(indices.end(), static_cast<size_t>(given[i]), static_cast<double>(i));
  }
  const Shape shape{static_cast<int64_t>(indices.size())};
  return take(x, from_values(indices, shape, options_next_to(a, DType::i64)), at);
}

Tensor tile(const Tensor& a, const std::vector<int64_t>& counts) {
  check_tensor("tile", a);
  for (const int64_t count : counts) check_count("tile", count);
  const int given = static_cast<int>(counts.size()), ndim = std::max(a.ndim(), given);
  Shape shape = a.shape();
  while (shape.ndim() < ndim) shape.insert(0, 1);
  // One dim more in front of each repeated one, so that all are copied at once.
  Tensor apart = reshape(a, shape);
  Shape many = shape;
  for (int i = given - 1; i >= 0; --i) {
    const int64_t count = counts[static_cast<size_t>(i)];
    const int dim = ndim - given + i;
    if (count == 1) continue;
    apart = unsqueeze(apart, dim);
    many.insert(dim, count);
    shape[dim] *= count;
  }
  return apart_from(a, reshape(expand(apart, many), shape));
}

static Tensor rolled(const Tensor& a, int64_t shift, int dim) {
  const int64_t size = a.size(dim), rest = size ? shift % size : 0;
  if (rest == 0) return a;
  const int64_t first = rest > 0 ? size - rest : -rest;
  return cat({slice(a, dim, first, size), slice(a, dim, 0, first)}, dim);
}

Tensor roll(const Tensor& a, const std::vector<int64_t>& shifts, const std::vector<int>& dims) {
  check_tensor("roll", a);
  if (dims.empty() && shifts.size() != 1) {
    fail("roll: ", shifts.size(), " shifts without dims, expected one");
  }
  if (dims.empty()) return reshape(roll(flatten(a), shifts, {0}), a.shape());
  if (shifts.size() != 1 && shifts.size() != dims.size()) {
    fail("roll: ", shifts.size(), " shifts for ", dims.size(), " dims, expected as many");
  }
  Tensor result = a;
  for (size_t i = 0; i < dims.size(); ++i) {
    result = rolled(result, shifts[shifts.size() == 1 ? 0 : i],
                    normalized_dim("roll", dims[i], a.ndim()));
  }
  return apart_from(a, result);
}

Tensor diff(const Tensor& a, int dim, int n, const Tensor& before, const Tensor& after) {
  check_tensor("diff", a);
  if (n < 0) fail("diff: n is ", n, ", expected at least 0");
  const int at = normalized_dim("diff", dim, a.ndim());
  Tensors parts{a};
  if (before) parts.insert(parts.begin(), before);
  if (after) parts.push_back(after);
  Tensor x = parts.size() > 1 || n == 0 ? cat(parts, at) : a;
  for (int i = 0; i < n && (i == 0 || x.size(at) > 0); ++i) {
    const int64_t size = x.size(at);
    const Tensor later = slice(x, at, std::min<int64_t>(1, size), size);
    const Tensor earlier = slice(x, at, 0, std::max<int64_t>(size - 1, 0));
    x = x.dtype() == DType::boolean ? not_equal(later, earlier) : sub(later, earlier);
  }
  return x;
}

Tensor constant_pad(const Tensor& a, const std::vector<int64_t>& pads, double value) {
  check_tensor("constant_pad", a);
  const auto dims = static_cast<int>(pads.size() / 2);
  if (pads.size() % 2 != 0 || dims > a.ndim()) {
    fail("constant_pad: number of pads is ", pads.size(), ", expected two for each of at most ",
         a.ndim(), " dims");
  }
  Tensor cut = a;
  std::vector<int64_t> padded;
  bool pads_any = false;
  for (int d = 0; d < a.ndim(); ++d) {
    const auto i = static_cast<size_t>(2 * (a.ndim() - 1 - d));
    const int64_t before = i < pads.size() ? pads[i] : 0;
    const int64_t behind = i < pads.size() ? pads[i + 1] : 0;
    const int64_t from = std::max<int64_t>(-before, 0), less = from + std::max<int64_t>(-behind, 0);
    const int64_t rest = a.size(d) - less, first = std::max<int64_t>(before, 0);
    if (rest < 0) {
      fail("constant_pad: pads cut ", less, " elements of dim ", d, ", expected at most ",
           a.size(d));
    }
    cut = slice(cut, d, from, from + rest);
    padded.push_back(first);
    padded.push_back(first + rest + std::max<int64_t>(behind, 0));
    pads_any |= padded.back() != rest;
  }
  if (!pads_any) return cut;
  const Tensor made = pad_dims(cut, padded);
  if (value == 0) return made;
  const Tensor inside = pad_dims(ones_like(cast(cut, DType::boolean)), padded);
  return masked_fill(made, logical_not(inside), value);
}

/// to = from, with zeros above the kept diagonal, or below it when `upper`. The rows are those of
/// matrices with `height` rows each.
struct Triangle {
  Rows to, from;
  int64_t height;
  bool upper;
  /// Distance of element (0, 0) from the kept diagonal: negative when it is below it.
  int64_t above;
};

WEFT_KERNEL(void, copy_triangle, (Device device, const Triangle& x), (device, x))

static Line part_of(Line line, int64_t first) {
  const int64_t bytes = first * line.stride * static_cast<int64_t>(size_of(line.dtype));
  line.data = static_cast<char*>(line.data) + bytes;
  return line;
}

void host::copy_triangle(Device, const Triangle& x) {
  const int64_t n = x.to.size();
  const double zero = 0;
  const Line zeros{DType::f64, const_cast<double*>(&zero), 0};
  parallel_for(x.to.count(), grain_of(n), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t on_diagonal = r % x.height - x.above;
      const int64_t split = std::clamp<int64_t>(on_diagonal + (x.upper ? 0 : 1), 0, n);
      const Line whole = x.to.line(r), given = x.from.line(r);
      convert_line(x.upper ? whole : part_of(whole, split), zeros, x.upper ? split : n - split);
      const int64_t first = x.upper ? split : 0;
      convert_line(part_of(whole, first), part_of(given, first), x.upper ? n - split : split);
    }
  });
}

#ifdef WEFT_WITH_CUDA
namespace cuda {
namespace {

/// C holds every value of both dtypes.
template <class C> struct CopyTriangle {
  Triangle x;

  WEFT_DEVICE void operator()(const Thread& thread) const {
    for (int64_t i = thread.index; i < x.to.count() * x.to.size(); i += thread.count) {
      const int64_t row = i / x.to.size(), column = i - row * x.to.size();
      const int64_t distance = x.above + column - row % x.height;
      const bool kept = x.upper ? distance >= 0 : distance <= 0;
      const C value = kept ? value_of<C>(x.from, row, column) : C(0);
      set_value(x.to, row, column, value);
    }
  }
};

}  // namespace

void copy_triangle(Device device, const Triangle& x) {
  visit_compute(x.from.dtype(), [&](auto type) {
    using C = typename decltype(type)::type;
    launch(CopyTriangle<C>{x}, x.to.count() * x.to.size(), current_stream(device));
  });
}

}  // namespace cuda
#endif

/// structure: whether upper; values: the diagonal.
static const Op triangle_op = register_op({
    .name = "triangle",
    .rule = "... m n -> ... m n",
    .moves = true,
    .structure = one_flag("flag for the upper one"),
    .linear = {{0}},
    .positions = {{"m", "n"}},
    .forward =
        [](const Call& c) {
          const Box& box = c.out_box();
          const int last = box.shape.ndim() - 1;
          const int64_t above =
              box.offset[last] - box.offset[last - 1] - static_cast<int64_t>(c.value(0));
          const Rows to(c.out(), last), from(c.in(0), last);
          check_rows("triangle", to, from);
          copy_triangle(c.out().device,
                        {to, from, c.out().shape[last - 1], c.attribute(0) != 0, above});
        },
    .backward = [](const Grad& g) { g.give(0, triangle_op, {g.grad()}, g.attributes()); },
    .saves_in = std::vector<int>{},
    .samples = {{.shapes = {{5, 7}}, .attributes = {.structure = {0}}},
                {.shapes = {{2, 7, 5}}, .attributes = {.structure = {1}, .values = {-1}}},
                {.shapes = {{5, 3}}, .attributes = {.structure = {0}, .values = {1}}}},
});

static Tensor triangle(const char* what, const Tensor& a, bool upper, int64_t diagonal) {
  check_tensor(what, a);
  if (a.ndim() < 2)
    fail(what, ": number of dims of ", a.shape(), " is ", a.ndim(), ", expected at least 2");
  return triangle_op({a}, {.structure = {upper}, .values = {static_cast<double>(diagonal)}});
}

Tensor tril(const Tensor& a, int64_t diagonal) { return triangle("tril", a, false, diagonal); }
Tensor triu(const Tensor& a, int64_t diagonal) { return triangle("triu", a, true, diagonal); }

}  // namespace weft
