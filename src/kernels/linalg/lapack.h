// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

// The functions of BLAS and LAPACK that weft calls, for float and double. Their matrices are in
// column-major order; the last arguments are the lengths of the strings before them.

extern "C" void openblas_set_num_threads(int threads);

#define WEFT_LAPACK(T, p)                                                                         \
  extern "C" {                                                                                    \
  void p##gemm_(const char*, const char*, const int*, const int*, const int*, const T*, const T*, \
                const int*, const T*, const int*, const T*, T*, const int*, size_t, size_t);      \
  void p##trsm_(const char*, const char*, const char*, const char*, const int*, const int*,       \
                const T*, const T*, const int*, T*, const int*, size_t, size_t, size_t, size_t);  \
  void p##potrf_(const char*, const int*, T*, const int*, int*, size_t);                          \
  void p##getrf_(const int*, const int*, T*, const int*, int*, int*);                             \
  void p##gelqf_(const int*, const int*, T*, const int*, T*, T*, const int*, int*);               \
  void p##orglq_(const int*, const int*, const int*, T*, const int*, const T*, T*, const int*,    \
                 int*);                                                                           \
  void p##syevd_(const char*, const char*, const int*, T*, const int*, T*, T*, const int*, int*,  \
                 const int*, int*, size_t, size_t);                                               \
  void p##gesdd_(const char*, const int*, const int*, T*, const int*, T*, T*, const int*, T*,     \
                 const int*, T*, const int*, int*, int*, size_t);                                 \
  }                                                                                               \
  namespace weft {                                                                                \
  template <> struct Lapack<T> {                                                                  \
    static constexpr auto gemm = p##gemm_;                                                        \
    static constexpr auto trsm = p##trsm_;                                                        \
    static constexpr auto potrf = p##potrf_;                                                      \
    static constexpr auto getrf = p##getrf_;                                                      \
    static constexpr auto gelqf = p##gelqf_;                                                      \
    static constexpr auto orglq = p##orglq_;                                                      \
    static constexpr auto syevd = p##syevd_;                                                      \
    static constexpr auto gesdd = p##gesdd_;                                                      \
  };                                                                                              \
  }

namespace weft {

template <class T> struct Lapack;

/// While one exists, OpenBLAS uses `threads` threads for the calling thread. Its number of threads
/// belongs to the process, and changing it during another call is not safe: calls with one thread
/// run at the same time, others alone.
class BlasThreads {
 public:
  explicit BlasThreads(int threads);
  ~BlasThreads();
  BlasThreads(const BlasThreads&) = delete;

 private:
  const bool alone_;
};

}  // namespace weft

WEFT_LAPACK(float, s)
WEFT_LAPACK(double, d)
