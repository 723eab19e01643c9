// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "weft/extend/op.h"

namespace weft {

/// The forward of an op of tests: a sigmoid(a) b, in f64 or f32.
inline void compute_gate(const Call& c) {
  const auto value = [&](int i, int64_t at) {
    return c.in(i).dtype == f64 ? c.in(i).as<double>()[at]
                                : static_cast<double>(c.in(i).as<float>()[at]);
  };
  for (int64_t i = 0; i < c.in(0).numel(); ++i) {
    const double a = value(0, i), b = value(1, i);
    const double y = a / (1 + std::exp(-a)) * b;
    if (c.out().dtype == f64) {
      c.out().as<double>()[i] = y;
    } else {
      c.out().as<float>()[i] = static_cast<float>(y);
    }
  }
}

}  // namespace weft
