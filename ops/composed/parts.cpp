// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "ops/dims.h"
#include "ops/promotion.h"
#include "weft/ops.h"

namespace weft {

static Tensors parts_of(const Tensor& a, const std::vector<int64_t>& sizes, int dim) {
  Tensors parts;
  int64_t start = 0;
  for (const int64_t size : sizes) {
    parts.push_back(slice(a, dim, start, start + size));
    start += size;
  }
  return parts;
}

Tensors split(const Tensor& a, int64_t size, int dim) {
  const int at = checked_dim("split", a, dim);
  const int64_t all = a.size(at);
  if (size < 0 || (size == 0 && all > 0)) {
    fail("split: the size of a part is ", size, ", expected at least 1");
  }
  std::vector<int64_t> sizes(1, std::min(size, all));
  for (int64_t start = size; start < all; start += size) {
    sizes.push_back(std::min(size, all - start));
  }
  return parts_of(a, sizes, at);
}

Tensors split(const Tensor& a, const std::vector<int64_t>& sizes, int dim) {
  const int at = checked_dim("split", a, dim);
  int64_t rest = a.size(at);
  for (const int64_t size : sizes) {
    if (size < 0) fail("split: the size of a part is ", size, ", expected at least 0");
    rest = size > rest ? -1 : rest - size;
    if (rest < 0) break;
  }
  if (rest != 0) {
    fail("split: sizes of the parts add up to ",
         std::accumulate(sizes.begin(), sizes.end(), int64_t{0}), ", expected ", a.size(at),
         ", the size of dim ", at);
  }
  return parts_of(a, sizes, at);
}

static void check_parts(const char* what, int64_t count) {
  if (count < 1) fail(what, ": the number of parts is ", count, ", expected at least 1");
}

Tensors chunk(const Tensor& a, int64_t count, int dim) {
  const int at = checked_dim("chunk", a, dim);
  check_parts("chunk", count);
  const int64_t size = a.size(at);
  if (size == 0) return Tensors(static_cast<size_t>(count), a);
  return split(a, size / count + (size % count != 0), at);
}

Tensors tensor_split(const Tensor& a, int64_t count, int dim) {
  const int at = checked_dim("tensor_split", a, dim);
  check_parts("tensor_split", count);
  constexpr int64_t kMost = 1 << 20;
  if (count > kMost) fail("tensor_split: number of parts is ", count, ", expected at most ", kMost);
  std::vector<int64_t> sizes(static_cast<size_t>(count), a.size(at) / count);
  for (int64_t i = 0; i < a.size(at) % count; ++i) ++sizes[static_cast<size_t>(i)];
  return parts_of(a, sizes, at);
}

Tensors tensor_split(const Tensor& a, const std::vector<int64_t>& indices, int dim) {
  const int at = checked_dim("tensor_split", a, dim);
  Tensors parts;
  int64_t start = 0;
  for (const int64_t index : indices)
    parts.push_back(slice(a, at, std::exchange(start, index), index));
  parts.push_back(slice(a, at, start, a.size(at)));
  return parts;
}

/// Equal parts along a dim of a tensor of at least `dims` dims.
static Tensors equal_parts(const char* what, const Tensor& a, int64_t count, int dim, int dims) {
  check_tensor(what, a);
  check_parts(what, count);
  if (a.ndim() < dims) fail(what, ": the tensor is ", a.shape(), ", expected ", dims, " dims");
  if (a.size(dim) % count != 0) {
    fail(what, ": number of parts is ", count, ", expected one that divides ", a.size(dim),
         ", the size of dim ", dim);
  }
  return tensor_split(a, count, dim);
}

Tensors hsplit(const Tensor& a, int64_t count) {
  check_tensor("hsplit", a);
  return equal_parts("hsplit", a, count, a.ndim() > 1, 1);
}
Tensors vsplit(const Tensor& a, int64_t count) { return equal_parts("vsplit", a, count, 0, 2); }
Tensors dsplit(const Tensor& a, int64_t count) { return equal_parts("dsplit", a, count, 2, 3); }

Tensor narrow(const Tensor& a, int dim, int64_t start, int64_t length) {
  const int at = checked_dim("narrow", a, dim);
  const int64_t size = a.size(at), from = start < 0 ? start + size : start;
  if (from < 0 || from > size || length < 0 || length > size - from) {
    fail("narrow: start and length are ", start, " and ", length, ", expected a part of dim ", at,
         " of ", a.shape());
  }
  return slice(a, at, from, from + length);
}

Tensor select(const Tensor& a, int dim, int64_t index) {
  const int at = checked_dim("select", a, dim);
  const int64_t size = a.size(at), from = index < 0 ? index + size : index;
  if (from < 0 || from >= size) {
    fail("select: index is ", index, ", expected one of the ", size, " of dim ", at, " of ",
         a.shape());
  }
  return squeeze(slice(a, at, from, from + 1), at);
}

Tensor index_select(const Tensor& a, int dim, const Tensor& index) {
  check_tensor("index_select", a, index);
  const Tensor indices = index.ndim() == 0 ? unsqueeze(index, 0) : index;
  if (a.ndim() > 0) return take(a, indices, dim);
  return reshape(take(unsqueeze(a, 0), indices, dim), {});
}

Tensor unflatten(const Tensor& a, int dim, std::vector<int64_t> sizes) {
  const int at = checked_dim("unflatten", a, dim);
  int64_t product = 1, unknown = 0;
  for (const int64_t size : sizes) (size == -1 ? unknown += 1 : product *= size);
  if (unknown == 1 && product > 0 && a.size(at) % product == 0) {
    std::replace(sizes.begin(), sizes.end(), int64_t{-1}, a.size(at) / product);
  } else if (sizes.empty() || unknown > 0 || product != a.size(at)) {
    fail("unflatten: sizes are ", Shape(std::span<const int64_t>(sizes)),
         ", expected such that their product is ", a.size(at), ", the size of dim ", at, " of ",
         a.shape());
  }
  Shape shape = a.shape();
  shape[at] = sizes[0];
  for (size_t i = 1; i < sizes.size(); ++i) shape.insert(at + static_cast<int>(i), sizes[i]);
  return reshape(a, shape);
}

Tensor unfold(const Tensor& a, int dim, int64_t size, int64_t step) {
  check_tensor("unfold", a);
  if (a.ndim() == 0) return squeeze(unfold(unsqueeze(a, 0), dim, size, step), 0);
  const int at = checked_dim("unfold", a, dim);
  if (step < 1) fail("unfold: the step is ", step, ", expected at least 1");
  if (size < 0 || size > a.size(at)) {
    fail("unfold: the size is ", size, ", expected 0 to ", a.size(at), ", the size of dim ", at);
  }
  const int64_t windows = (a.size(at) - size) / step + 1;
  if (size == 0) {
    Shape none = with_size(a.shape(), at, windows);
    none.push_back(0);
    return expand(unsqueeze(narrow(a, at, 0, 0), -1), none);
  }
  return unfolded(a, at, size, step);
}

Tensor rot90(const Tensor& a, int64_t turns, const std::vector<int>& dims) {
  check_tensor("rot90", a);
  if (dims.size() != 2) fail("rot90: ", dims.size(), " dims are given, expected 2");
  const int from = checked_dim("rot90", a, dims[0]), to = checked_dim("rot90", a, dims[1]);
  if (from == to) fail("rot90: dim ", from, " is given twice, expected two dims");
  switch ((turns % 4 + 4) % 4) {
    case 1: return transpose(flip(a, {to}), from, to);
    case 2: return flip(a, {from, to});
    case 3: return flip(transpose(a, from, to), {to});
    default: return clone(a);
  }
}

Tensor fliplr(const Tensor& a) { return flip(a, {checked_dim("fliplr", a, 1)}); }
Tensor flipud(const Tensor& a) { return flip(a, {checked_dim("flipud", a, 0)}); }

Tensor diagonal(const Tensor& a, int64_t offset, int dim1, int dim2) {
  const int first = checked_dim("diagonal", a, dim1), second = checked_dim("diagonal", a, dim2);
  if (first == second) fail("diagonal: dim ", first, " is given twice, expected two dims");
  return diagonal(moveaxis(a, {first, second}, {-2, -1}), offset);
}

Tensor diag_embed(const Tensor& a, int64_t offset, int dim1, int dim2) {
  check_tensor("diag_embed", a);
  const int first = normalized_dim("diag_embed", dim1, a.ndim() + 1);
  const int second = normalized_dim("diag_embed", dim2, a.ndim() + 1);
  if (first == second) fail("diag_embed: dim ", first, " is given twice, expected two dims");
  if (a.ndim() == 0) fail("diag_embed: the tensor is ", a.shape(), ", expected at least one dim");
  const Tensor rows = pad(a, -1, std::max<int64_t>(-offset, 0), std::max<int64_t>(offset, 0));
  const int64_t size = rows.size(-1);
  const Tensor mask = eye(size, size, offset, options_next_to(a, DType::boolean));
  const Tensor made = where(mask, unsqueeze(rows, -1), next_to(a, false));
  return moveaxis(cast(made, a.dtype()), {-2, -1}, {first, second});
}

Tensor diag(const Tensor& a, int64_t diagonal) {
  check_tensor("diag", a);
  if (a.ndim() == 1) return diag_embed(a, diagonal);
  if (a.ndim() != 2) fail("diag: the tensor is ", a.shape(), ", expected one or two dims");
  return weft::diagonal(a, diagonal);
}

Tensor diagflat(const Tensor& a, int64_t offset) { return diag_embed(flatten(a), offset); }

Tensor block_diag(const Tensors& tensors) {
  if (tensors.empty()) fail("block_diag: number of tensors is 0, expected at least 1");
  Tensors blocks;
  int64_t columns = 0, before = 0;
  for (const Tensor& tensor : tensors) {
    blocks.push_back(atleast_2d(tensor));
    if (tensor.ndim() > 2) fail("block_diag: a tensor is ", tensor.shape(), ", expected a matrix");
    columns += blocks.back().size(1);
  }
  for (Tensor& block : blocks) {
    const int64_t own = block.size(1);
    block = pad(block, 1, before, columns - before - own);
    before += own;
  }
  return cat(blocks, 0);
}

static Tensor with_dims(Tensor a, int dims) {
  check_tensor("atleast_1d", a);
  while (a.ndim() < dims) a = unsqueeze(a, a.ndim() < 2 ? 0 : -1);
  return a;
}
Tensor atleast_1d(const Tensor& a) { return with_dims(a, 1); }
Tensor atleast_2d(const Tensor& a) { return with_dims(a, 2); }
Tensor atleast_3d(const Tensor& a) { return with_dims(a, 3); }

static Tensors each(const Tensors& tensors, Tensor (*function)(const Tensor&)) {
  Tensors made;
  for (const Tensor& tensor : tensors) made.push_back(function(tensor));
  return made;
}

Tensor hstack(const Tensors& tensors) {
  const Tensors parts = each(tensors, atleast_1d);
  return cat(parts, !parts.empty() && parts[0].ndim() > 1);
}
Tensor vstack(const Tensors& tensors) { return cat(each(tensors, atleast_2d), 0); }
Tensor dstack(const Tensors& tensors) { return cat(each(tensors, atleast_3d), 2); }

static Tensor as_columns(const Tensor& a) {
  check_tensor("column_stack", a);
  return a.ndim() < 2 ? reshape(a, {a.numel(), 1}) : a;
}
Tensor column_stack(const Tensors& tensors) { return cat(each(tensors, as_columns), 1); }

Tensor cartesian_prod(const Tensors& tensors) {
  if (tensors.size() == 1) return tensors[0];
  Tensors columns;
  for (const Tensor& grid : meshgrid(tensors, "ij")) columns.push_back(flatten(grid));
  return stack(columns, 1);
}

}  // namespace weft
