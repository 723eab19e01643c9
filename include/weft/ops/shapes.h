// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

// Ops that change shape or order of the same elements: views where the memory allows it. Negative
// dims count from the end.

/// The same elements, in row-major order, in another shape.
WEFT_API Tensor reshape(const Tensor& a, const Shape& shape);
WEFT_API Tensor transpose(const Tensor& a, int dim0, int dim1);
/// Dim i of the result is dim `dims[i]` of `a`.
WEFT_API Tensor permute(const Tensor& a, const std::vector<int>& dims);
/// Elements start, start + step, ... before stop along `dim`; negative start and stop count from
/// the end.
WEFT_API Tensor slice(const Tensor& a, int dim, int64_t start, int64_t stop, int64_t step = 1);
/// Concatenates along `dim`; the other dims must be equal.
WEFT_API Tensor cat(const Tensors& tensors, int dim);
/// Adds `before` and `after` zeros along `dim`.
WEFT_API Tensor pad(const Tensor& a, int dim, int64_t before, int64_t after);
/// Adds `pads`[0] elements `value` before and pads[1] behind the last dim, [2] and [3] at the one
/// before it, and so on. Negative numbers cut, at most all elements of a dim.
WEFT_API Tensor constant_pad(const Tensor& a, const std::vector<int64_t>& pads, double value = 0);
/// Repeats dims of size 1 (and new leading ones) to `shape`, without a copy.
WEFT_API Tensor expand(const Tensor& a, const Shape& shape);
/// Removes dim `dim`, whose size must be 1.
WEFT_API Tensor squeeze(const Tensor& a, int dim);
/// Inserts a dim of size 1 before dim `dim`.
WEFT_API Tensor unsqueeze(const Tensor& a, int dim);

/// Dims `first` to `last` as one dim.
WEFT_API Tensor flatten(const Tensor& a, int first = 0, int last = -1);
/// The last two dims exchanged; std::invalid_argument for fewer dims.
WEFT_API Tensor matrix_transpose(const Tensor& a);
/// Moves dims `from` to the places `to`; the others keep their order.
WEFT_API Tensor moveaxis(const Tensor& a, const std::vector<int>& from, const std::vector<int>& to);
/// Elements (i, i + offset) of the last two dims: [..., n].
WEFT_API Tensor diagonal(const Tensor& a, int64_t offset = 0);
/// The same of dims `dim1` and `dim2`.
WEFT_API Tensor diagonal(const Tensor& a, int64_t offset, int dim1, int dim2);
/// Expands all tensors to the shape that they broadcast to.
WEFT_API Tensors broadcast_tensors(const Tensors& tensors);
/// Coordinates of a grid [n0, n1, ...] for tensors [n0], [n1], ...; `indexing` is "xy" (the first
/// two dims exchanged) or "ij".
WEFT_API Tensors meshgrid(const Tensors& tensors, std::string_view indexing = "xy");

/// Joins tensors of one shape along a new dim before dim `dim`.
WEFT_API Tensor stack(const Tensors& tensors, int dim = 0);
/// Splits dim `dim` into slices, which do not have it.
WEFT_API Tensors unstack(const Tensor& a, int dim = 0);
/// Repeats each slice of `dim` `count` times; without a dim, of the flattened tensor.
WEFT_API Tensor repeat(const Tensor& a, int64_t count, std::optional<int> dim = {});
/// Repeats slice i of `dim` counts[i] times; each rank reads the counts.
WEFT_API Tensor repeat(const Tensor& a, const Tensor& counts, std::optional<int> dim = {});
/// Repeats the tensor counts[i] times along dim i, counted from the last one.
WEFT_API Tensor tile(const Tensor& a, const std::vector<int64_t>& counts);
/// Moves the elements by shifts[i] along dims[i], from the end to the front; without dims, those of
/// the flattened tensor by the only shift.
WEFT_API Tensor roll(const Tensor& a, const std::vector<int64_t>& shifts,
                     const std::vector<int>& dims = {});
/// Differences of neighbours along `dim`, `n` times, with `before` and `after` joined first; for
/// bool, whether they differ.
WEFT_API Tensor diff(const Tensor& a, int dim = -1, int n = 1, const Tensor& before = {},
                     const Tensor& after = {});

/// Reverses the elements along `dims` ({}: all dims). Ranks exchange those parts of sharded dims
/// that change places.
WEFT_API Tensor flip(const Tensor& a, const std::vector<int>& dims = {});
/// a with zeros above (tril), or below (triu), diagonal `diagonal` of its last two dims. Element
/// (i, j) is on diagonal j - i.
WEFT_API Tensor tril(const Tensor& a, int64_t diagonal = 0);
WEFT_API Tensor triu(const Tensor& a, int64_t diagonal = 0);

/// Returns at most `count` parts along `dim`, of ceil(size / count) elements, the last of fewer.
WEFT_API Tensors chunk(const Tensor& a, int64_t count, int dim = 0);
/// Parts of `size` elements along `dim`, the last of fewer; or of `sizes`, which add up to all.
WEFT_API Tensors split(const Tensor& a, int64_t size, int dim = 0);
WEFT_API Tensors split(const Tensor& a, const std::vector<int64_t>& sizes, int dim = 0);
/// `count` parts whose sizes differ by at most 1; or parts that end before each of `indices`.
WEFT_API Tensors tensor_split(const Tensor& a, int64_t count, int dim = 0);
WEFT_API Tensors tensor_split(const Tensor& a, const std::vector<int64_t>& indices, int dim = 0);
/// tensor_split along dim 1 (0 of a vector), 0 and 2.
WEFT_API Tensors hsplit(const Tensor& a, int64_t count);
WEFT_API Tensors vsplit(const Tensor& a, int64_t count);
WEFT_API Tensors dsplit(const Tensor& a, int64_t count);

/// `length` elements along `dim` from `start` on.
WEFT_API Tensor narrow(const Tensor& a, int dim, int64_t start, int64_t length);
/// Element `index` of `dim`, which the result lacks.
WEFT_API Tensor select(const Tensor& a, int dim, int64_t index);
/// The slices of `dim` at `index` [n].
WEFT_API Tensor index_select(const Tensor& a, int dim, const Tensor& index);
/// Dim `dim` as dims of `sizes`, of which one may be -1.
WEFT_API Tensor unflatten(const Tensor& a, int dim, std::vector<int64_t> sizes);
/// Windows of `size` elements along `dim`, `step` apart, in a new last dim.
WEFT_API Tensor unfold(const Tensor& a, int dim, int64_t size, int64_t step);

/// Turns the plane of two dims by 90 degrees `turns` times, from the first to the second.
WEFT_API Tensor rot90(const Tensor& a, int64_t turns = 1, const std::vector<int>& dims = {0, 1});
/// flip of dim 1, and of dim 0.
WEFT_API Tensor fliplr(const Tensor& a);
WEFT_API Tensor flipud(const Tensor& a);

/// The last dim as diagonal `offset` of the dims `dim1` and `dim2` of a tensor of zeros.
WEFT_API Tensor diag_embed(const Tensor& a, int64_t offset = 0, int dim1 = -2, int dim2 = -1);
/// A vector as a diagonal of a matrix, or a diagonal of a matrix as a vector.
WEFT_API Tensor diag(const Tensor& a, int64_t diagonal = 0);
/// diag_embed of all elements in row-major order.
WEFT_API Tensor diagflat(const Tensor& a, int64_t offset = 0);
/// Matrices along the diagonal of one.
WEFT_API Tensor block_diag(const Tensors& tensors);

/// Dims of size 1 added to have 1, 2 or 3.
WEFT_API Tensor atleast_1d(const Tensor& a);
WEFT_API Tensor atleast_2d(const Tensor& a);
WEFT_API Tensor atleast_3d(const Tensor& a);
/// Joins along dim 1 (0 for vectors), 0 and 2, and vectors as columns.
WEFT_API Tensor hstack(const Tensors& tensors);
WEFT_API Tensor vstack(const Tensors& tensors);
WEFT_API Tensor dstack(const Tensors& tensors);
WEFT_API Tensor column_stack(const Tensors& tensors);
/// All combinations of an element of each vector: a row each.
WEFT_API Tensor cartesian_prod(const Tensors& tensors);

}  // namespace weft
