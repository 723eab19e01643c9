// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <vector>

#include "src/base/parallel.h"
#include "src/kernels/math/reducers.h"
#include "src/kernels/reduce/reduce.h"
#include "src/kernels/rows/row_functors.h"

namespace weft::host {

/// Elements that one task multiplies, and those of one sum within it.
static constexpr int64_t kDotElements = 65536, kDotBlock = 4096;

template <class T> static double dot_part(const T* a, const T* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i += kDotBlock) {
    sum += static_cast<double>(
        reduce_row<SumOf, T>(std::min(kDotBlock, n - i), ProductOfTwo<T>{}, a + i, b + i));
  }
  return sum;
}

template <class T>
static void dot_rows_as(const MemoryBlock& out, const MemoryBlock& a, const MemoryBlock& b) {
  const int64_t rows = out.numel(), n = a.shape.back();
  const int64_t parts = std::max<int64_t>(1, (n + kDotElements - 1) / kDotElements);
  std::vector<double> sums(static_cast<size_t>(rows * parts));
  parallel_for(rows * parts, grain_of(std::min(n, kDotElements)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % parts * kDotElements, at = i / parts * n + first;
      sums[static_cast<size_t>(i)] =
          dot_part(a.as<T>() + at, b.as<T>() + at, std::min(kDotElements, n - first));
    }
  });
  for (int64_t row = 0; row < rows; ++row) {
    const double* own = sums.data() + row * parts;
    out.as<T>()[row] = static_cast<T>(std::accumulate(own, own + parts, 0.0));
  }
}

void dot_rows(const MemoryBlock& out, const MemoryBlock& a, const MemoryBlock& b) {
  out.dtype == DType::f64 ? dot_rows_as<double>(out, a, b) : dot_rows_as<float>(out, a, b);
}

}  // namespace weft::host
