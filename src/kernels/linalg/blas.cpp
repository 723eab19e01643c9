// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "src/kernels/linalg/lapack.h"
#include "src/kernels/matmul/product.h"
#include "src/kernels/matmul/tasks.h"
#include "weft/error.h"

namespace weft {

static std::shared_mutex blas_mutex;
/// The number that OpenBLAS has; 0 before it is first set. Changed with the mutex held alone.
static std::atomic<int> blas_threads = 0;

static void set_blas_threads(int threads) {
  if (blas_threads == threads) return;
  set_blas_thread_count(threads);
  blas_threads = threads;
}

/// What is missing where OpenBLAS would wait forever: it takes 128 MiB of address space for each
/// core.
static std::string missing_address_space() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  const auto cores = static_cast<uint64_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  const uint64_t needed = (128 * cores + 64) * kMiB;
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const uint64_t used = pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t left = used < limit.rlim_cur ? limit.rlim_cur - used : 0;
  if (left >= needed) return "";
  return concat("linalg: address space that ulimit -v leaves is ", left / kMiB, " MiB, expected ",
                needed / kMiB, " MiB for OpenBLAS on ", cores, " cores");
}

BlasThreads::BlasThreads(int threads) : alone_(threads > 1) {
  static const std::string missing = missing_address_space();
  if (!missing.empty()) throw_runtime_error(missing);
#ifndef WEFT_WITH_OPENMP
  // OpenBLAS may have OpenMP, whose number of threads belongs to each calling thread.
  WEFT_STATIC_TLS static thread_local bool is_set = false;
  if (!std::exchange(is_set, true)) {
    const std::unique_lock lock(blas_mutex);
    set_blas_thread_count(1);
  }
#endif
  if (alone_) {
    blas_mutex.lock();
    set_blas_threads(threads);
    return;
  }
  for (;;) {
    blas_mutex.lock_shared();
    if (blas_threads == 1) return;
    blas_mutex.unlock_shared();
    const std::unique_lock lock(blas_mutex);
    set_blas_threads(1);
  }
}

BlasThreads::~BlasThreads() { alone_ ? blas_mutex.unlock() : blas_mutex.unlock_shared(); }

namespace {

/// A factor of a row-major product as BLAS, which has column-major matrices, reads it.
template <class T> struct BlasMatrix {
  const char* operation;
  const T* data;
  int leading;

  BlasMatrix(const Matrix& x, int64_t rows, int64_t columns) {
    const DenseRows dense = dense_rows(x, rows, columns);
    operation = dense.transposed ? "T" : "N";
    data = x.as<T>();
    leading = static_cast<int>(std::max<int64_t>(1, dense.leading));
  }
};

bool is_for_blas(const Matrix& x, int64_t rows, int64_t columns) {
  const DenseRows dense = dense_rows(x, rows, columns);
  return dense.possible && dense.leading <= INT32_MAX;
}

/// c = a b + beta c by one thread; c has dense rows.
template <class T> void multiply_as(const Product& p) {
  const BlasMatrix<T> a(p.a, p.m, p.k), b(p.b, p.k, p.n), c(p.c, p.m, p.n);
  const int m = static_cast<int>(p.m), n = static_cast<int>(p.n), k = static_cast<int>(p.k);
  const T one(1), beta(p.beta);
  const BlasThreads single(1);
  Lapack<T>::gemm(b.operation, a.operation, &n, &m, &k, &one, b.data, &b.leading, a.data,
                  &a.leading, &beta, p.c.as<T>(), &c.leading, 1, 1);
}

void multiply_part(const Product& p) {
  if (p.c.dtype == DType::f64) return multiply_as<double>(p);
  visit_complex(p.c.dtype, [&]<class T>(Type<T>) { multiply_as<T>(p); });
}

void add_bias(const Product& p) {
  ScratchMemory scratch;
  const auto* bias = static_cast<const double*>(bias_in(DType::f64, p, scratch));
  for (int64_t i = 0; bias && i < p.m; ++i) {
    double* row = p.c.as<double>() + i * p.c.row;
    for (int64_t j = 0; j < p.n; ++j) row[j * p.c.column] += bias[j];
  }
}

}  // namespace

bool multiply_by_blas(const Product& given) {
#ifdef WEFT_OPENBLAS_FILE
  static const bool is_there = missing_address_space().empty() && kOpenBlas.can_be_loaded();
  if (!is_there) return false;
#endif
  Product p = given;
  ScratchMemory scratch;
  if (!is_for_blas(p.a, p.m, p.k)) p.a = copied(p.a, p.m, p.k, p.a.dtype, scratch);
  if (!is_for_blas(p.b, p.k, p.n)) p.b = copied(p.b, p.k, p.n, p.b.dtype, scratch);
  const bool in_place = is_for_blas(p.c, p.m, p.n);
  if (!in_place) {
    const auto bytes = static_cast<int64_t>(size_of(p.c.dtype));
    p.c = {scratch.take<char>(p.m * p.n * bytes), p.c.dtype, p.n, 1};
    p.beta = 0;
  }
  const Matrix computed = p.c;
  if (dense_rows(p.c, p.m, p.n).transposed) p = p.transposed();
  constexpr int64_t kWorthAThread = int64_t{1} << 19;
  const int threads = p.m * p.n * p.k < 2 * kWorthAThread ? 1 : usable_threads();
  const bool by_rows = p.m >= p.n;
  const int64_t size = by_rows ? p.m : p.n, share = (size + threads - 1) / threads;
  run_tasks((size + share - 1) / share, threads, [&](int64_t i, int) {
    const int64_t first = i * share;
    multiply_part(p.part(by_rows, first, std::min(share, size - first)));
  });
  if (!in_place) store_matrix(computed, given.m, given.n, given.c, given.beta);
  if (given.c.dtype == DType::f64) add_bias(given);
  return true;
}

}  // namespace weft
