// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "weft/op.h"

namespace weft {

/// What central differences in f64 say about an op's backward.
struct JacobianReport {
  /// Operands compared, and the largest |difference| / max|difference quotient|.
  int operands = 0;
  double worst = 0;
  /// Why nothing was compared; empty otherwise.
  std::string skipped;
};

/// Of result 0 times two random cotangents, on `device`, by every floating operand of the sample,
/// whose floating dtypes become f64.
JacobianReport check_jacobian(const Op& op, const OpSample& sample, uint64_t seed,
                              Device device = cpu);

}  // namespace weft
