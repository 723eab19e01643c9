// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ops/engine/tensor_body.h"
#include "src/base/numeric.h"
#include "src/kernels/kernel.h"
#include "weft/error.h"
#include "weft/extend/op.h"

namespace weft {

/// Name of the factor of dim `dim` in rules made for a call: "d0", "d1", ...
inline std::string dim_name(int dim, const char* prefix = "d") {
  std::string name = prefix;
  return name += std::to_string(dim);
}

/// Text of an array from its dims; "." for none.
inline std::string array_text(const std::string& dims) { return dims.empty() ? "." : dims; }

/// `shape` with that size of one dim.
inline Shape with_size(Shape shape, int dim, int64_t size) {
  shape[dim] = size;
  return shape;
}
/// Sizes 1 but that of one dim.
inline Shape ones_but(int ndim, int dim, int64_t size) {
  return with_size(Shape::filled(ndim, 1), dim, size);
}

/// The order of dims that undoes `order`.
template <class Order> std::vector<int> inverse_of(const Order& order) {
  std::vector<int> inverse(static_cast<size_t>(order.end() - order.begin()));
  for (int d = 0; const auto dim : order) inverse[static_cast<size_t>(dim)] = d++;
  return inverse;
}

// Descriptions of the numbers in an op's `structure`; see OpSpec.

inline bool is_dim(int64_t number, const Shape& shape) {
  return number >= 0 && number < shape.ndim();
}

inline bool is_flag(int64_t number) { return number == 0 || number == 1; }

/// True when the set of dims of an op contains `dim`.
inline bool has_dim(const Attributes& attributes, int dim) {
  return attributes.structure[0] >> dim & 1;
}

/// The set of dims as bits: all if `dims` is empty.
inline int64_t bits_of_dims(const char* what, const Tensor& a, const std::vector<int>& dims) {
  check_tensor(what, a);
  if (dims.empty()) return (int64_t{1} << a.ndim()) - 1;
  int64_t bits = 0;
  for (int dim : dims) {
    int at = normalized_dim(what, dim, a.ndim());
    if (bits >> at & 1)
      fail(what, ": dim ", at, " of ", a.shape(), " is given twice, expected once");
    bits |= int64_t{1} << at;
  }
  return bits;
}

/// Returns `dims`, counted from the front; std::invalid_argument for one that is given twice.
inline std::vector<int> distinct_dims(const char* what, const Tensor& a, std::vector<int> dims) {
  bits_of_dims(what, a, dims);
  for (int& dim : dims) dim = normalized_dim(what, dim, a.ndim());
  return dims;
}

/// Checks the tensor; returns its dim `dim`, which must have elements, counted from the front.
inline int filled_dim(const char* what, const Tensor& a, int dim) {
  const int at = checked_dim(what, a, dim);
  if (a.size(at) > 0) return at;
  fail(what, ": size of dim ", at, " of ", a.shape(), " must be at least 1, got 0");
}

inline bool are_sizes(const Dims& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](int64_t size) { return size >= 0; });
}

/// True if `count` elements from `start` on, one every `step`, are within `size`.
inline bool lies_within(int64_t start, int64_t count, int64_t step, int64_t size) {
  if (start < 0 || count < 0 || step < 1 || start > size) return false;
  return count == 0 || (start < size && count - 1 <= (size - 1 - start) / step);
}

/// A sample of an op with indices: all values are from 0 to below `end`.
inline OpSample sample_of_indices(std::vector<Shape> shapes, const Attributes& attributes,
                                  std::vector<DType> dtypes, double end) {
  return {std::move(shapes), attributes, std::move(dtypes), 0, end};
}

/// A sample with these numbers as its structure; values are from `low` to below `high`.
inline OpSample sample_with(std::vector<Shape> shapes, const Dims& structure,
                            std::vector<DType> dtypes = {}, double low = -2, double high = 2) {
  return {std::move(shapes), {.structure = structure}, std::move(dtypes), low, high};
}

inline Structure one_flag(const char* name) {
  return {name,
          [](const Dims& s, std::span<const Shape>) { return s.ndim() == 1 && is_flag(s[0]); }};
}

inline Structure one_dim() {
  return {"dim", [](const Dims& s, std::span<const Shape> shapes) {
            return s.ndim() == 1 && is_dim(s[0], shapes[0]);
          }};
}

/// The numbers of `dim_and_flag`.
struct DimAndFlag {
  int dim;
  bool flag;
};

inline Structure dim_and_flag(const char* names) {
  return {names, [](const Dims& s, std::span<const Shape> shapes) {
            return s.ndim() == 2 && is_dim(s[0], shapes[0]) && is_flag(s[1]);
          }};
}

inline Structure set_of_dims() {
  return {"set of dims as bits", [](const Dims& s, std::span<const Shape> shapes) {
            return s.ndim() == 1 && s[0] >= 0 && s[0] < int64_t{1} << shapes[0].ndim();
          }};
}

// Ops along one dim, attribute 0. The other dims may be sharded.

template <class Run> int along_dim(const Run& run) { return static_cast<int>(run.attribute(0)); }

/// Dims of an array of `ndim` dims by name, with `name` for dim `dim`: "d0 [d1] d2"; the numbers of
/// the others are between `before` and `after`.
inline std::string dims_with(int ndim, int dim, const std::string& name, const char* before = "d",
                             const char* after = " ") {
  std::string text;
  for (int d = 0; d < ndim; ++d) text += d == dim ? name + " " : concat(before, d, after);
  return text;
}

/// Returns the rule of ops whose operands and results have the same shape; the dim, n, may be
/// sharded.
template <int kOperands, int kResults = 1>
Rule scan_rule(const Attributes& attributes, std::span<const Shape> shapes) {
  const int dim = static_cast<int>(attributes.structure[0]);
  const std::string array = dims_with(shapes[0].ndim(), dim, "n");
  std::string text = array;
  for (int i = 1; i < kOperands + kResults; ++i) text += (i == kOperands ? "-> " : ", ") + array;
  return {text};
}

/// Returns the elements of `block` from `begin` to `end` of one dim.
inline MemoryBlock part_along(const MemoryBlock& block, int dim, int64_t begin, int64_t end) {
  Box box{Dims::filled(block.shape.ndim(), 0), block.shape};
  box.offset[dim] = begin;
  box.shape[dim] = end - begin;
  return block.part(box);
}

/// Windows of `size` >= 1 elements, `step` apart, of dim `dim`, in a new last dim; a view.
Tensor unfolded(const Tensor& a, int dim, int64_t size, int64_t step);

/// Slice `i` of a dim, without the dim.
inline MemoryBlock slice_at(MemoryBlock block, int dim, int64_t i) {
  block.data = element_at(block.data, i * block.strides[dim], block.dtype);
  block.shape.erase(dim);
  block.strides.erase(dim);
  return block;
}

/// Returns `block` with dim `dim` and the last one exchanged.
inline MemoryBlock with_last_dim(const MemoryBlock& block, int dim) {
  return exchanged(block, dim, block.shape.ndim() - 1);
}

}  // namespace weft
