// SPDX-License-Identifier: Apache-2.0
#include "ops/functions.h"
#include "ops/reduced_dims.h"
#include "src/kernels/reduce/reduce.h"
#include "weft/ops/reductions.h"

namespace weft {

/// Registers a reduction of truth values as 0 and 1: `any` is their maximum, `all` their minimum,
/// which ranks can reduce.
static Op truth_reduction(const char* name, Reduction reduction, const char* mark) {
  OpSpec spec = marked_reduction(name, reduction, mark);
  spec.dtype = bool_result;
  spec.differentiable = false;
  spec.samples = {{.shapes = {{5, 7}}, .attributes = {.structure = {1}}, .dtypes = {boolean}},
                  {.shapes = {{5, 3, 2}}, .attributes = {.structure = {6}}, .dtypes = {boolean}},
                  {.shapes = {{2, 1}}, .attributes = {.structure = {3}}, .dtypes = {i64}},
                  {.shapes = {{5, 2}}, .attributes = {.structure = {2}}}};
  return register_op(std::move(spec));
}

static const Op all_op = truth_reduction("all", Reduction::all, ":min");
static const Op any_op = truth_reduction("any", Reduction::any, ":max");

Tensor all(const Tensor& a, const std::vector<int>& dims, bool keepdims) {
  return reduced(all_op, a, reduced_bits("all", a, dims), keepdims);
}

Tensor any(const Tensor& a, const std::vector<int>& dims, bool keepdims) {
  return reduced(any_op, a, reduced_bits("any", a, dims), keepdims);
}

}  // namespace weft
