// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "src/base/parallel.h"

namespace weft {

/// Checks that `compute` returns the same bits with 1, 2 and 3 threads.
template <class Compute> void expect_bits_for_any_threads([[maybe_unused]] const Compute& compute) {
#ifdef WEFT_WITH_OPENMP
  const int before = omp_get_max_threads();
  std::vector<double> results[3];
  for (const int threads : {1, 2, 3}) {
    omp_set_num_threads(threads);
    results[threads - 1] = compute();
  }
  omp_set_num_threads(before);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
#else
  GTEST_SKIP() << "built with one thread";
#endif
}

}  // namespace weft
