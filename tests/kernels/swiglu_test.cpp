// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/swiglu/swiglu.h"

#include <gtest/gtest.h>

#include "tests/kernels/array.h"

namespace weft {
namespace {

double silu(double x) { return x / (1 + std::exp(-x)); }
double silu_slope(double x) { return (silu(x + 1e-5) - silu(x - 1e-5)) / 2e-5; }

TEST(Swiglu, EqualsTheFormulaAndItsDifferences) {
  for (DType dtype : {f32, bf16, f64}) {
    for (const Shape& shape : {Shape{7, 100}, Shape{3, 5, 2}, Shape{0, 3}}) {
      const Array a = Array::random(dtype, shape, Lie::dense, 1, -9, 9);
      const Array b = Array::random(dtype, shape, Lie::gaps, 2),
                  dy = Array::random(dtype, shape, Lie::dense, 3);
      std::vector<double> y = a.values(), da = y, db = y;
      for (size_t i = 0; i < y.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        y[i] = silu(a[at]) * b[at];
        da[i] = dy[at] * b[at] * silu_slope(a[at]);
        db[i] = dy[at] * silu(a[at]);
      }
      const Array out(dtype, shape), to_a(dtype, shape), to_b(dtype, shape, Lie::transposed);
      swiglu(out.block, a.block, b.block);
      swiglu_backward(to_a.block, to_b.block, dy.block, a.block, b.block);
      expect_near(out.values(), y, rounding(dtype));
      expect_near(to_a.values(), da, std::max(rounding(dtype), 1e-9));
      expect_near(to_b.values(), db, rounding(dtype));
    }
  }
}

}  // namespace
}  // namespace weft
