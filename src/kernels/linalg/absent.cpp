// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/linalg/linalg.h"
#include "src/kernels/matmul/product.h"
#include "weft/error.h"

// A build without OpenBLAS.

namespace weft {

bool multiply_by_blas(const Product&) { return false; }

namespace host {

[[noreturn]] static void refuse(const char* what) {
  fail(what, ": LAPACK is missing in this build, expected one with WEFT_OPENBLAS=ON");
}

void cholesky_factor(const MemoryBlock&, const MemoryBlock&, const MemoryBlock&, bool) {
  refuse("cholesky");
}
void lu_factor(const MemoryBlock&, const MemoryBlock&, const MemoryBlock&, const MemoryBlock&,
               const MemoryBlock&) {
  refuse("lu_factor");
}
void solve_triangle(const MemoryBlock&, const MemoryBlock&, const MemoryBlock&, Triangle) {
  refuse("solve_triangular");
}
void lu_solve(const MemoryBlock&, const MemoryBlock&, const MemoryBlock&, const MemoryBlock&,
              bool) {
  refuse("solve");
}
void qr_factor(const MemoryBlock&, const MemoryBlock&, const MemoryBlock&) { refuse("qr"); }
void symmetric_eigen(const MemoryBlock&, const MemoryBlock*, const MemoryBlock&, const MemoryBlock&,
                     bool) {
  refuse("eigh");
}
void singular_values(const MemoryBlock*, const MemoryBlock&, const MemoryBlock*, const MemoryBlock&,
                     const MemoryBlock&) {
  refuse("svd");
}
void general_eigen(const MemoryBlock&, const MemoryBlock*, const MemoryBlock&, const MemoryBlock&) {
  refuse("eig");
}

}  // namespace host

}  // namespace weft
