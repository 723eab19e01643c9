// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ops/structure.h"
#include "src/kernels/reduce/reduce.h"
#include "weft/error.h"
#include "weft/extend/op.h"
#include "weft/ops/shapes.h"

namespace weft {

// Shared by reductions. Their only structural attribute is the set of reduced dims, as bits;
// results lack these dims.

inline bool is_reduced(const Attributes& attributes, int dim) {
  return attributes.structure[0] >> dim & 1;
}

inline Dims reduced_dims(const Call& c) {
  Dims dims;
  for (int d = 0; d < c.in(0).shape.ndim(); ++d) {
    if (is_reduced(c.attributes(), d)) dims.push_back(d);
  }
  return dims;
}

/// Returns `shape` with size 1 at the reduced dims.
inline Shape kept_shape(const Attributes& attributes, Shape shape) {
  for (int d = 0; d < shape.ndim(); ++d) {
    if (is_reduced(attributes, d)) shape[d] = 1;
  }
  return shape;
}

/// Returns a rule that marks reduced dims by `before` and `after`: "" and ":max", or "[" and "]".
inline Rule reduction_rule(const Attributes& attributes, std::span<const Shape> shapes,
                           const char* before, const char* after) {
  std::string in, out;
  for (int d = 0; d < shapes[0].ndim(); ++d) {
    bool reduced = is_reduced(attributes, d);
    in += concat(reduced ? before : "", dim_name(d), reduced ? after : "", " ");
    if (!reduced) out += concat(dim_name(d), " ");
  }
  return {array_text(in) + " -> " + array_text(out)};
}

/// The spec of a reduction whose rule marks reduced dims by `mark`, as ":max".
inline OpSpec marked_reduction(const char* name, Reduction reduction, const char* mark) {
  return {
      .name = name,
      .rule_of =
          [mark](const Attributes& attributes, std::span<const Shape> shapes) {
            return reduction_rule(attributes, shapes, "", mark);
          },
      .structure = set_of_dims(),
      .forward =
          [reduction](const Call& c) { reduce(reduction, c.out(), c.in(0), reduced_dims(c)); },
  };
}

inline Tensor reduced(const Op& op, const Tensor& a, int64_t bits, bool keepdims) {
  const Attributes attributes{.structure = {bits}};
  Tensor result = op({a}, attributes);
  return keepdims ? reshape(result, kept_shape(attributes, a.shape())) : result;
}

}  // namespace weft
