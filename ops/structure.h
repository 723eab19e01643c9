// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

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

/// Whether the set of dims of an op contains `dim`.
inline bool has_dim(const Attributes& attributes, int dim) {
  return attributes.structure[0] >> dim & 1;
}

/// The set of dims as bits: all if `dims` is empty.
inline int64_t bits_of_dims(const char* what, const Tensor& a, const std::vector<int>& dims) {
  if (!a) fail(what, ": no tensor is given, expected one");
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
  return {.shapes = std::move(shapes),
          .attributes = attributes,
          .dtypes = std::move(dtypes),
          .low = 0,
          .high = end};
}

/// A sample with these numbers as its structure.
inline OpSample sample_with(std::vector<Shape> shapes, const Dims& structure,
                            std::vector<DType> dtypes = {}) {
  return {.shapes = std::move(shapes),
          .attributes = {.structure = structure},
          .dtypes = std::move(dtypes)};
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

}  // namespace weft
