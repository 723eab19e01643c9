// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/linalg/linalg.h"

namespace weft::cuda {

/// Calls of cuSOLVER and cuBLAS for one matrix of f32 or f64 in column-major order in the device's
/// memory, queued on its current stream. `info`: one number there.
struct SolverCall {
  DType dtype;
  Device device;

  /// The triangle `upper` (of columns) of a [n, n].
  void cholesky(void* a, int64_t n, bool upper, int* info) const;
  /// a [m, n]; pivots count from 1.
  void lu(void* a, int64_t m, int64_t n, int64_t* pivots, int* info) const;
  /// x [k, n] = x t^-1 or x t^-T, for a triangle t of a.
  void divide_by_triangle(void* x, const void* a, int64_t k, int64_t n, bool upper, bool transposed,
                          bool unit) const;
  /// a [m, n] becomes R and reflections, from which `form_q` makes the first columns of Q [m, c].
  void qr(void* a, int64_t m, int64_t n, void* tau, int* info) const;
  void form_q(void* a, int64_t m, int64_t columns, int64_t reflections, const void* tau,
              int* info) const;
  /// a [n, n] becomes the eigenvectors, if these are wanted.
  void symmetric_eigen(void* a, int64_t n, void* values, bool with_vectors, bool upper,
                       int* info) const;
  /// a [m, n], m >= n, is overwritten; job 'N', 'S' or 'A' as in LAPACK's gesvd.
  void singular_values(char job, void* a, int64_t m, int64_t n, void* s, void* u, void* vt,
                       int64_t vt_leading, int* info) const;
};

}  // namespace weft::cuda
