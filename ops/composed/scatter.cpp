// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <string_view>

#include "ops/adds.h"
#include "ops/complex.h"
#include "ops/dims.h"
#include "ops/engine/copied_view.h"
#include "ops/promotion.h"
#include "ops/take.h"
#include "weft/ops.h"

namespace weft {

static Operand flatten(const Operand& x) { return x.is_number() ? x : flatten(x.tensor); }

/// write(a, 0, index, src, more...) for a tensor without dims, which gets one for the call.
template <class Write, class Source, class... More>
static Tensor of_scalar(const Write& write, const Tensor& a, const Tensor& index, const Source& src,
                        const More&... more) {
  return reshape(write(flatten(a), 0, index, flatten(src), more...), {});
}

/// A vector of indices.
static Tensor vector_of(const char* what, const Tensor& index) {
  check_tensor(what, index);
  if (index.ndim() > 1) fail(what, ": index is ", index.shape(), ", expected one dim");
  return reshape(index, {index.numel()});
}

/// The places of dim `dim` that each rank writes: its part of `a`.
static Tensor places_of(const Tensor& a, int dim) {
  return places_along(a.shape(), dim, a.sharding(), a.device());
}

Tensor index_add(const Tensor& a, int dim, const Tensor& index, const Tensor& src, Number alpha) {
  check_tensor("index_add", a);
  if (a.ndim() == 0) return of_scalar(index_add, a, index, src, alpha);
  const int at = normalized_dim("index_add", dim, a.ndim());
  const Tensor scaled = is_real(alpha, 1) ? src : mul(src, alpha);
  const Tensor places = vector_of("index_add", index);
  if (adds_into(a, scaled, places, at)) {
    return add_slices_into(a, scaled, as_indices("index_add", "index", places), at);
  }
  return add(a, add_slices(scaled, places, at, places_of(a, at)));
}

static void check_src(const char* what, const Tensor& a, const Tensor& src) {
  if (!src || a.dtype() == src.dtype()) return;
  fail(what, ": dtype of src is ", src.dtype(), ", expected ", a.dtype(),
       ", that of the tensor; cast it");
}

Tensor index_copy(const Tensor& a, int dim, const Tensor& index, const Tensor& src) {
  check_tensor("index_copy", a);
  if (a.ndim() == 0) return of_scalar(index_copy, a, index, src);
  const int at = normalized_dim("index_copy", dim, a.ndim());
  check_src("index_copy", a, src);
  return put_slices(a, src, vector_of("index_copy", index), at);
}

Tensor index_fill(const Tensor& a, int dim, const Tensor& index, const Operand& value) {
  check_tensor("index_fill", a);
  if (a.ndim() == 0) return reshape(index_fill(unsqueeze(a, 0), 0, index, value), {});
  const int at = normalized_dim("index_fill", dim, a.ndim());
  const Tensor places = vector_of("index_fill", index);
  const Tensor each =
      reshape(ones_like(cast(places, DType::i32)), ones_but(a.ndim(), at, places.numel()));
  const Tensor counts = add_slices(each, places, at, places_of(a, at));
  return masked_fill(a, greater(counts, 0), value);
}

/// Zeros behind `x` in all dims but `dim`, to the shape of `a`.
static Tensor padded(Tensor x, const Tensor& a, int dim) {
  for (int d = 0; d < a.ndim(); ++d) {
    if (d != dim && x.size(d) < a.size(d)) x = pad(x, d, 0, a.size(d) - x.size(d));
  }
  return x;
}

/// Checks the shapes, and returns the dim.
static int check_scatter(const char* what, const Tensor& a, int dim, const Tensor& index,
                         const Shape& src) {
  check_tensor(what, index);
  const int at = normalized_dim(what, dim, a.ndim());
  if (index.ndim() != a.ndim() || src.ndim() != a.ndim()) {
    fail(what, ": index is ", index.shape(), " and src ", src, ", expected as many dims as ",
         a.shape(), " has");
  }
  for (int d = 0; d < a.ndim(); ++d) {
    if (index.size(d) <= src[d] && (d == at || index.size(d) <= a.size(d))) continue;
    fail(what, ": index is ", index.shape(), ", expected at most ", std::min(src[d], a.size(d)),
         " in dim ", d);
  }
  return at;
}

static Tensor cut_to(Tensor x, const Shape& shape) {
  for (int d = 0; d < x.ndim(); ++d) {
    if (x.size(d) > shape[d]) x = slice(x, d, 0, shape[d]);
  }
  return x;
}

Tensor scatter_add(const Tensor& a, int dim, const Tensor& index, const Tensor& src) {
  check_tensor("scatter_add", a, src);
  if (a.ndim() == 0) return of_scalar(scatter_add, a, flatten(index), src);
  const int at = check_scatter("scatter_add", a, dim, index, src.shape());
  if (index.numel() == 0) return clone(a);
  const Tensor values = cut_to(src, index.shape());
  if (adds_into(a, values, index, at)) {
    return add_along_dim_into(a, values, as_indices("scatter_add", "index", index), at);
  }
  return add(a, padded(add_along_dim(values, index, at, places_of(a, at)), a, at));
}

using WriteFunction = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, int);

/// write(a, values, index, dim) where dims from `d` on of the values, but for `dim`, may be shorter
/// than those of `a`.
static Tensor write_into_part(WriteFunction write, const Tensor& a, const Tensor& values,
                              const Tensor& index, int dim, int d = 0) {
  while (d < a.ndim() && (d == dim || a.size(d) == index.size(d))) ++d;
  if (d == a.ndim()) return write(a, values, index, dim);
  const int64_t size = index.size(d);
  const Tensor part = write_into_part(write, slice(a, d, 0, size), values, index, dim, d + 1);
  return cat({part, slice(a, d, size, a.size(d))}, d);
}

Tensor scatter_along_dim(const Tensor& a, int dim, const Tensor& index, const Operand& src) {
  check_tensor("scatter", a);
  if (a.ndim() == 0) return of_scalar(scatter_along_dim, a, flatten(index), src);
  const int at =
      check_scatter("scatter", a, dim, index, src.is_number() ? index.shape() : src.tensor.shape());
  if (index.numel() == 0) return clone(a);
  if (src.is_number()) {
    const Tensor each = ones_like(cast(index, DType::i32));
    const Tensor counts = add_along_dim(each, index, at, places_of(a, at));
    return masked_fill(a, greater(padded(counts, a, at), 0), src);
  }
  check_src("scatter", a, src.tensor);
  return write_into_part(put_along_dim, a, cut_to(src.tensor, index.shape()), index, at);
}

/// Elements that are written to no longer count.
static Tensor without_self(const Tensor& a, int dim, const Tensor& index, const Tensor& src,
                           const std::string& reduce) {
  if (reduce == "prod") return scatter_along_dim(a, dim, index, 1);
  if (reduce != "amax" && reduce != "amin") return scatter_along_dim(a, dim, index, 0);
  if (!is_floating(a.dtype())) return scatter_along_dim(a, dim, index, src);
  const double infinity = std::numeric_limits<double>::infinity();
  return scatter_along_dim(a, dim, index, reduce == "amax" ? -infinity : infinity);
}

static void check_reduction(const char* what, const std::string& reduce) {
  constexpr std::string_view kReductions[] = {"sum", "mean", "prod", "amax", "amin"};
  if (std::ranges::count(kReductions, reduce)) return;
  fail(what, ": reduce is ", reduce, ", expected sum, prod, mean, amax or amin");
}

Tensor scatter_reduce(const Tensor& a, int dim, const Tensor& index, const Tensor& src,
                      const std::string& reduce, bool include_self) {
  check_tensor("scatter_reduce", a, src);
  check_reduction("scatter_reduce", reduce);
  if (a.ndim() == 0) {
    return of_scalar(scatter_reduce, a, flatten(index), src, reduce, include_self);
  }
  check_src("scatter_reduce", a, src);
  const int at = check_scatter("scatter_reduce", a, dim, index, src.shape());
  if (index.numel() == 0) return clone(a);
  const Tensor values = cut_to(src, index.shape());
  const Tensor from = include_self ? a : without_self(a, at, index, values, reduce);
  if (reduce == "prod") return write_into_part(multiply_along_dim, from, values, index, at);
  if (reduce == "amax") return write_into_part(max_along_dim, from, values, index, at);
  if (reduce == "amin") return write_into_part(min_along_dim, from, values, index, at);
  const Tensor total = scatter_add(from, at, index, values);
  if (reduce == "sum") return total;
  const Tensor each = ones_like(cast(index, DType::i32));
  const Tensor counts = padded(add_along_dim(each, index, at, places_of(a, at)), a, at);
  const Tensor divisor = include_self ? add(counts, 1) : maximum(counts, ones_like(counts));
  return is_floating(a.dtype()) ? div(total, cast(divisor, a.dtype()))
                                : floor_divide(total, cast(divisor, a.dtype()));
}

Tensor index_reduce(const Tensor& a, int dim, const Tensor& index, const Tensor& src,
                    const std::string& reduce, bool include_self) {
  check_tensor("index_reduce", a);
  check_reduction("index_reduce", reduce);
  if (a.ndim() == 0) return of_scalar(index_reduce, a, index, src, reduce, include_self);
  const int at = normalized_dim("index_reduce", dim, a.ndim());
  const Shape shape = ones_but(a.ndim(), at, vector_of("index_reduce", index).numel());
  return scatter_reduce(a, at, expand(reshape(index, shape), src.shape()), src, reduce,
                        include_self);
}

Tensor select_scatter(const Tensor& a, const Tensor& src, int dim, int64_t index) {
  const int at = checked_dim("select_scatter", a, dim);
  const int64_t size = a.size(at), place = index < 0 ? index + size : index;
  if (place < 0 || place >= size) {
    fail("select_scatter: index is ", index, ", expected one of the ", size, " of dim ", at);
  }
  return slice_scatter(a, unsqueeze(src, at), at, place, place + 1);
}

Tensor slice_scatter(const Tensor& a, const Tensor& src, int dim, int64_t start, int64_t stop,
                     int64_t step) {
  const int at = checked_dim("slice_scatter", a, dim);
  if (step < 1) fail("slice_scatter: step is ", step, ", expected at least 1");
  const int64_t size = a.size(at);
  const auto place = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size); };
  const int64_t first = place(start), last = std::max(first, place(stop));
  const int64_t count = (last - first + step - 1) / step;
  if (count == 0) return clone(a);
  const Shape expected = with_size(a.shape(), at, count);
  if (!(src.shape() == expected)) {
    fail("slice_scatter: src is ", src.shape(), ", expected ", expected);
  }
  const Tensor places = arange(static_cast<double>(first), static_cast<double>(last),
                               static_cast<double>(step), options_next_to(a, DType::i64));
  return index_copy(a, at, places, as_dtype(src, a.dtype()));
}

Tensor masked_scatter(const Tensor& a, const Tensor& mask, const Tensor& src) {
  check_tensor("masked_scatter", a, src);
  check_mask("masked_scatter", mask);
  const Tensors both = broadcast_tensors({a, mask});
  if (both[0].numel() == 0) return clone(both[0]);
  const Tensor places = sub(cumulative_sum(flatten(both[1]), 0), 1);
  const auto count = static_cast<int64_t>(max(places).full_tensor().item()) + 1;
  if (count > src.numel()) {
    fail("masked_scatter: number of elements of src is ", src.numel(), ", expected at least ",
         count, ", those of the mask that hold");
  }
  if (count == 0) return clone(both[0]);
  const Tensor values = take(flatten(src), clip(places, 0), 0);
  return where(both[1], reshape(values, both[0].shape()), both[0]);
}

Tensor put(const Tensor& a, const Tensor& index, const Tensor& src, bool accumulate) {
  check_tensor("put", a, index, src);
  if (index.numel() != src.numel()) {
    fail("put: number of elements of src is ", src.numel(), ", expected ", index.numel(),
         ", that of the index");
  }
  if (index.numel() == 0) return clone(a);
  return reshape(index_put(flatten(a), {{0, as_indices("put", "index", flatten(index))}},
                           flatten(src), accumulate),
                 a.shape());
}

Tensor take_flat(const Tensor& a, const Tensor& index) {
  check_tensor("take", a, index);
  return reshape(take(flatten(a), flatten(index), 0), index.shape());
}

static Tensor with_elements(const char* what, const Tensor& a, const Tensor& places,
                            const Tensor& src) {
  check_tensor(what, src);
  if (places.shape() == src.shape()) return put(a, places, src);
  fail(what, ": src is ", src.shape(), ", expected ", places.shape());
}

Tensor diagonal_scatter(const Tensor& a, const Tensor& src, int64_t offset, int dim1, int dim2) {
  check_tensor("diagonal_scatter", a);
  const Tensor numbers = reshape(numbers_next_to(a, 0, a.numel()), a.shape());
  return with_elements("diagonal_scatter", a, diagonal(numbers, offset, dim1, dim2), src);
}

static Tensor strided_places(const Tensor& a, const Shape& sizes,
                             const std::vector<int64_t>& strides, int64_t offset) {
  check_tensor("as_strided", a);
  if (sizes.ndim() != static_cast<int>(strides.size())) {
    fail("as_strided: number of strides is ", strides.size(), ", expected ", sizes.ndim());
  }
  Tensor places = full({}, static_cast<double>(offset), options_next_to(a, DType::i64));
  int64_t last = offset;
  for (int d = 0; d < sizes.ndim(); ++d) {
    const int64_t stride = strides[static_cast<size_t>(d)];
    // Bounds that no product below can exceed.
    if (sizes[d] < 0 || stride < 0 || sizes[d] > a.numel() || stride > a.numel()) {
      fail("as_strided: size and stride of dim ", d, " are ", sizes[d], " and ", stride,
           ", expected 0 to ", a.numel(), ", the number of elements");
    }
    last += (sizes[d] - 1) * stride;
    places = add(unsqueeze(places, -1), mul(numbers_next_to(a, 0, sizes[d]), stride));
  }
  if (places.numel() > 0 && (offset < 0 || last >= a.numel())) {
    fail("as_strided: elements are ", offset, " to ", last, ", expected 0 to ", a.numel() - 1);
  }
  return places;
}

Tensor as_strided(const Tensor& a, const Shape& sizes, const std::vector<int64_t>& strides,
                  int64_t offset) {
  const Tensor copy = take_flat(a, strided_places(a, sizes, strides, offset));
  CopiedView::attach(copy, a, nullptr, kNoAttributes);
  return copy;
}
Tensor as_strided_scatter(const Tensor& a, const Tensor& src, const Shape& sizes,
                          const std::vector<int64_t>& strides, int64_t offset) {
  return with_elements("as_strided_scatter", a, strided_places(a, sizes, strides, offset), src);
}

Tensor fill(const Tensor& a, const Operand& value) {
  check_tensor("fill", a);
  const Tensor one = value.is_number() ? next_to(a, value) : value.tensor;
  check_tensor("fill", one);
  if (one.ndim() != 0) fail("fill: value is ", one.shape(), ", expected a tensor without dims");
  return where(not_equal(zeros_like(a), 0), zeros_like(a), cast(one, a.dtype()));
}

Tensor embedding_bag(const Tensor& weight, const Tensor& ids, const std::optional<Tensor>& offsets,
                     std::string_view mode, const std::optional<Tensor>& scales) {
  check_tensor("embedding_bag", weight, ids);
  if (mode != "sum" && mode != "mean" && mode != "max") {
    fail("embedding_bag: mode is ", in_quotes(mode), ", expected sum, mean or max");
  }
  if (ids.ndim() != (offsets ? 1 : 2)) {
    fail("embedding_bag: ids are ", ids.shape(), ", expected ", offsets ? 1 : 2, " dims ",
         offsets ? "with" : "without", " offsets");
  }
  if (scales && scales->shape() != ids.shape()) {
    fail("embedding_bag: scales are ", scales->shape(), ", expected ", ids.shape());
  }
  if (offsets && (offsets->ndim() != 1 || offsets->numel() == 0 ||
                  slice(*offsets, 0, 0, 1).full_tensor().item() != 0)) {
    fail("embedding_bag: offsets are ", offsets->shape(), ", expected a vector that starts with 0");
  }
  const int64_t bags = offsets ? offsets->numel() : ids.size(0);
  const Tensor bag =
      offsets ? sub(searchsorted(*offsets, numbers_next_to(ids, 0, ids.size(0)), true), 1)
              : flatten(expand(unsqueeze(numbers_next_to(ids, 0, bags), 1), ids.shape()));
  Tensor rows = embedding(weight, flatten(ids));
  if (scales) rows = mul(rows, unsqueeze(flatten(*scales), 1));
  const Tensor none = zeros({bags, weight.size(1)}, options_next_to(weight, weight.dtype()));
  return index_reduce(none, 0, bag, rows, std::string(mode == "max" ? "amax" : mode), false);
}

}  // namespace weft
