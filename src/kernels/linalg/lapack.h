// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "src/base/complex.h"
#include "src/base/loaded_library.h"

// The functions of BLAS and LAPACK that weft calls, for float, double and their complex numbers.
// Their matrices are in column-major order; the last arguments are the lengths of the strings
// before them.

extern "C" void openblas_set_num_threads(int threads);

// OpenBLAS takes 128 MiB of address space for each core when it is loaded, and waits for ever where
// it does not get them: it is loaded by the first call. Wheels link it, so that they contain it.
#ifdef WEFT_OPENBLAS_FILE
namespace weft {
inline constinit const LoadedLibrary kOpenBlas(WEFT_OPENBLAS_FILE, WEFT_OPENBLAS_DIRECTORY);
inline constinit const Loaded<decltype(::openblas_set_num_threads)> set_blas_thread_count(
    kOpenBlas, "openblas_set_num_threads");
}  // namespace weft
#define WEFT_BLAS_MEMBER(member, name) \
  static inline constinit const Loaded<decltype(::name)> member { kOpenBlas, #name }
#else
namespace weft {
inline constexpr auto set_blas_thread_count = ::openblas_set_num_threads;
}  // namespace weft
#define WEFT_BLAS_MEMBER(member, name) static constexpr auto member = ::name
#endif

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

// The functions whose names and arguments are those of p, and the others by their names.
#define WEFT_LAPACK(T, p, orglq_name, syevd_name)                                                 \
  extern "C" {                                                                                    \
  void p##gemm_(const char*, const char*, const int*, const int*, const int*, const T*, const T*, \
                const int*, const T*, const int*, const T*, T*, const int*, size_t, size_t);      \
  void p##trsm_(const char*, const char*, const char*, const char*, const int*, const int*,       \
                const T*, const T*, const int*, T*, const int*, size_t, size_t, size_t, size_t);  \
  void p##potrf_(const char*, const int*, T*, const int*, int*, size_t);                          \
  void p##getrf_(const int*, const int*, T*, const int*, int*, int*);                             \
  void p##gelqf_(const int*, const int*, T*, const int*, T*, T*, const int*, int*);               \
  void orglq_name(const int*, const int*, const int*, T*, const int*, const T*, T*, const int*,   \
                  int*);                                                                          \
  }                                                                                               \
  namespace weft {                                                                                \
  template <> struct Lapack<T> {                                                                  \
    WEFT_BLAS_MEMBER(gemm, p##gemm_);                                                             \
    WEFT_BLAS_MEMBER(trsm, p##trsm_);                                                             \
    WEFT_BLAS_MEMBER(potrf, p##potrf_);                                                           \
    WEFT_BLAS_MEMBER(getrf, p##getrf_);                                                           \
    WEFT_BLAS_MEMBER(gelqf, p##gelqf_);                                                           \
    WEFT_BLAS_MEMBER(orglq, orglq_name);                                                          \
    WEFT_BLAS_MEMBER(syevd, syevd_name);                                                          \
    WEFT_BLAS_MEMBER(gesdd, p##gesdd_);                                                           \
    WEFT_BLAS_MEMBER(geev, p##geev_);                                                             \
  };                                                                                              \
  }

#define WEFT_REAL_LAPACK(T, p)                                                                    \
  extern "C" {                                                                                    \
  void p##syevd_(const char*, const char*, const int*, T*, const int*, T*, T*, const int*, int*,  \
                 const int*, int*, size_t, size_t);                                               \
  void p##gesdd_(const char*, const int*, const int*, T*, const int*, T*, T*, const int*, T*,     \
                 const int*, T*, const int*, int*, int*, size_t);                                 \
  void p##geev_(const char*, const char*, const int*, T*, const int*, T*, T*, T*, const int*, T*, \
                const int*, T*, const int*, int*, size_t, size_t);                                \
  }                                                                                               \
  WEFT_LAPACK(T, p, p##orglq_, p##syevd_)

// These have memory of real numbers, too.
#define WEFT_COMPLEX_LAPACK(R, p)                                                                 \
  extern "C" {                                                                                    \
  void p##heevd_(const char*, const char*, const int*, weft::Complex<R>*, const int*, R*,         \
                 weft::Complex<R>*, const int*, R*, const int*, int*, const int*, int*, size_t,   \
                 size_t);                                                                         \
  void p##gesdd_(const char*, const int*, const int*, weft::Complex<R>*, const int*, R*,          \
                 weft::Complex<R>*, const int*, weft::Complex<R>*, const int*, weft::Complex<R>*, \
                 const int*, R*, int*, int*, size_t);                                             \
  void p##geev_(const char*, const char*, const int*, weft::Complex<R>*, const int*,              \
                weft::Complex<R>*, weft::Complex<R>*, const int*, weft::Complex<R>*, const int*,  \
                weft::Complex<R>*, const int*, R*, int*, size_t, size_t);                         \
  }                                                                                               \
  WEFT_LAPACK(weft::Complex<R>, p, p##unglq_, p##heevd_)

WEFT_REAL_LAPACK(float, s)
WEFT_REAL_LAPACK(double, d)
WEFT_COMPLEX_LAPACK(float, c)
WEFT_COMPLEX_LAPACK(double, z)
