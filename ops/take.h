// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/engine/tensor_body.h"
#include "weft/error.h"
#include "weft/extend/op.h"

namespace weft {

/// Returns `indices`, which the error calls `name`, as i32 or i64, the dtypes that kernels read;
/// std::invalid_argument "what: ..." unless they are integers.
Tensor as_indices(const char* what, const char* name, const Tensor& indices);

/// Checks that a mask is a tensor of bool; std::invalid_argument "what: ..." otherwise.
inline void check_mask(const char* what, const Tensor& mask) {
  check_tensor(what, mask);
  if (mask.dtype() == DType::boolean) return;
  fail(what, ": dtype of the mask is ", mask.dtype(), ", expected bool");
}

/// Returns a tensor without values that is laid out along `dim` as a tensor of that shape: it
/// determines which places each rank writes by index.
Tensor places_along(const Shape& shape, int dim, const Sharding& sharding, Device device,
                    DType dtype = DType::u8);

/// Zeros with the places of dim `dim`, plus the slices of `values` at `indices` [n], or the
/// elements of `values` at `indices`, which have their shape.
Tensor add_slices(const Tensor& values, const Tensor& indices, int dim, const Tensor& places);
Tensor add_along_dim(const Tensor& values, const Tensor& indices, int dim, const Tensor& places);
/// The same with `size` places, on all ranks.
Tensor add_along_dim(const Tensor& values, const Tensor& indices, int dim, int64_t size);

/// Registers an op along a dim n whose results are elements of operand 0 and their indices, which
/// its gradient reads.
Op register_with_indices(OpSpec spec);

/// `take` and `add_slices` along dim 0 whose results are cut as `indices`, or `places`, are: rows
/// stay whole even where ranks would receive fewer bytes of parts of more rows.
Tensor take_rows(const Tensor& a, const Tensor& indices);
Tensor add_rows(const Tensor& values, const Tensor& indices, const Tensor& places);

/// `a` with the slices of `values`, or its elements, in the places `indices` of dim `dim`; the last
/// of equal indices counts.
Tensor put_slices(const Tensor& a, const Tensor& values, const Tensor& indices, int dim);
Tensor put_along_dim(const Tensor& a, const Tensor& values, const Tensor& indices, int dim);

/// `a` with its elements at the places multiplied by the values, or the greater or lesser of both.
Tensor multiply_along_dim(const Tensor& a, const Tensor& values, const Tensor& indices, int dim);
Tensor max_along_dim(const Tensor& a, const Tensor& values, const Tensor& indices, int dim);
Tensor min_along_dim(const Tensor& a, const Tensor& values, const Tensor& indices, int dim);

}  // namespace weft
