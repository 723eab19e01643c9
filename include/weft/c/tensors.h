// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "weft/c/core.h"

/// Element types. WEFT_F8_* are stored, moved and cast only. WEFT_C64 and WEFT_C128 are complex:
/// two floats, or two doubles.
typedef int weft_dtype;
enum {
  WEFT_F32 = 0,
  WEFT_BF16 = 1,
  WEFT_F16 = 2,
  WEFT_F64 = 3,
  WEFT_I32 = 4,
  WEFT_I64 = 5,
  WEFT_U8 = 6,
  WEFT_BOOL = 7,
  WEFT_I8 = 8,
  WEFT_I16 = 9,
  WEFT_U16 = 10,
  WEFT_U32 = 11,
  WEFT_U64 = 12,
  WEFT_F8_E4M3 = 13,
  WEFT_F8_E5M2 = 14,
  WEFT_C64 = 15,
  WEFT_C128 = 16
};

/// A handle of a tensor, an array that is whole on one rank or laid out over a mesh; used and freed
/// as a `weft_mesh`, by `weft_tensor_free`. {0} is none.
typedef struct weft_tensor {
  uint64_t id;
} weft_tensor;

// Arrays are row-major: the last index varies fastest. To weft, a Fortran array a(m, n) is [n, m].
//
// A placement says how a tensor lies along one axis of its mesh: R, each rank has all of it; S(0),
// each has a slice of dim 0, of ceil(size / ranks) elements, the last ranks fewer or none; S(0:
// 3+1+4), slices of these sizes; P(sum), each has an addend of the values (also avg, max, min). A
// text has one for each axis in order, "S(0),R", or names axes, "rows=S(0)"; those that it does not
// name, and all axes for "" or NULL, have R.
//
// Functions that set `*result` make a tensor, which the caller frees. WEFT_INVALID also stands for
// NULL in place of memory or of a result, a handle that is not a tensor's, ndim out of 0 to 32,
// negative sizes, and a text of placements that has another form or does not fit mesh and shape.

/// Makes a tensor of `shape` from the values of the whole array, in memory that is read before the
/// call returns. With a mesh, each rank passes the same values and keeps its part; for P it passes
/// its addends.
WEFT_C_API weft_status weft_from_array(const void* values, weft_dtype dtype, int ndim,
                                       const int64_t* shape, weft_mesh mesh, const char* placements,
                                       weft_tensor* result);
/// Makes a tensor over a mesh from each rank's part, whose shape is `shape`; parts may have
/// different sizes along a dim that is cut, also 0. Collective: the ranks exchange the sizes.
/// WEFT_INVALID when other sizes differ.
WEFT_C_API weft_status weft_from_local(const void* values, weft_dtype dtype, int ndim,
                                       const int64_t* shape, weft_mesh mesh, const char* placements,
                                       weft_tensor* result);
/// Makes a tensor with all elements equal to `value`.
WEFT_C_API weft_status weft_full(double value, weft_dtype dtype, int ndim, const int64_t* shape,
                                 weft_mesh mesh, const char* placements, weft_tensor* result);
/// Makes a tensor of normally distributed random numbers, which do not depend on mesh and
/// placements.
WEFT_C_API weft_status weft_normal(double mean, double deviation, weft_dtype dtype, int ndim,
                                   const int64_t* shape, weft_mesh mesh, const char* placements,
                                   weft_tensor* result);
/// The same of random numbers uniform in [low, high).
WEFT_C_API weft_status weft_uniform(double low, double high, weft_dtype dtype, int ndim,
                                    const int64_t* shape, weft_mesh mesh, const char* placements,
                                    weft_tensor* result);
/// Frees the handle. {0} is allowed. WEFT_INVALID for a freed one.
WEFT_C_API weft_status weft_tensor_free(weft_tensor tensor);

/// Sets `*scope` to a mark, for `weft_scope_end`.
WEFT_C_API weft_status weft_scope_begin(uint64_t* scope);
/// Frees all handles that the thread made after the mark, except `count` tensors: for loops, whose
/// intermediate results then need no names. `kept` may be NULL for a count of 0.
WEFT_C_API weft_status weft_scope_end(uint64_t scope, int count, const weft_tensor* kept);

/// Sets `*dtype` to the dtype of the elements.
WEFT_C_API weft_status weft_tensor_dtype(weft_tensor tensor, weft_dtype* dtype);
/// Sets `*ndim` to the number of dims, at most 32.
WEFT_C_API weft_status weft_tensor_ndim(weft_tensor tensor, int* ndim);
/// Sets the first numbers of `shape`, which has `capacity`, to the sizes of the whole tensor.
/// WEFT_INVALID when it has more dims; so below.
WEFT_C_API weft_status weft_tensor_shape(weft_tensor tensor, int capacity, int64_t* shape);
/// Sets them to the sizes of this rank's part.
WEFT_C_API weft_status weft_tensor_local_shape(weft_tensor tensor, int capacity, int64_t* shape);
/// Sets them to the indices, in the whole tensor, of the first element of this rank's part.
WEFT_C_API weft_status weft_tensor_local_offset(weft_tensor tensor, int capacity, int64_t* offset);
/// Sets `*text` to shape, dtype, layout and values of this rank's part, in lines; valid until the
/// thread's next call that sets a text.
WEFT_C_API weft_status weft_tensor_describe(weft_tensor tensor, const char** text);

/// Writes the whole tensor to `values`, on each rank. Collective where it is laid out over a mesh.
/// WEFT_INVALID unless `dtype` is the tensor's, and `count` its number of elements.
WEFT_C_API weft_status weft_to_array(weft_tensor tensor, weft_dtype dtype, int64_t count,
                                     void* values);
/// Writes this rank's part, whose number of elements is `count`. Communicates nothing.
WEFT_C_API weft_status weft_local_to_array(weft_tensor tensor, weft_dtype dtype, int64_t count,
                                           void* values);
/// Sets `*value` to the value of a tensor of one element. Collective where it is laid out over a
/// mesh. WEFT_INVALID for more elements.
WEFT_C_API weft_status weft_item(weft_tensor tensor, double* value);

/// Returns the same values with other placements. Collective.
WEFT_C_API weft_status weft_redistribute(weft_tensor tensor, const char* placements,
                                         weft_tensor* result);
/// Sets `*text` to what `weft_redistribute` would do, in lines: steps, bytes that this rank
/// receives, predicted time, peak memory. Valid until the thread's next call that sets a text.
WEFT_C_API weft_status weft_explain(weft_tensor tensor, const char* placements, const char** text);

/// Sets whether `weft_backward` computes a gradient for a tensor. WEFT_INVALID for the result of an
/// op, and for integers.
WEFT_C_API weft_status weft_set_requires_grad(weft_tensor tensor, int requires_grad);
/// Adds to the gradients of all tensors with `weft_set_requires_grad` that the tensor, of one
/// element, depends on. Collective. WEFT_INVALID when it depends on none.
WEFT_C_API weft_status weft_backward(weft_tensor tensor);
/// Returns the gradient after `weft_backward`, laid out as the tensor. WEFT_INVALID when it has
/// none.
WEFT_C_API weft_status weft_grad(weft_tensor tensor, weft_tensor* result);
/// Removes the gradient.
WEFT_C_API weft_status weft_zero_grad(weft_tensor tensor);
/// Copies the elements of `from`, of the same shape and dtype or one that broadcasts or converts,
/// to the memory of `to`. Not recorded for backward. Collective where the layouts differ.
WEFT_C_API weft_status weft_assign(weft_tensor to, weft_tensor from);
