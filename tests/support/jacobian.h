// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "weft/extend/op.h"

namespace weft {

/// The comparison of an op's backward with central differences in f64.
struct JacobianReport {
  /// The number of operands compared, and the largest |difference| / max|difference quotient|.
  int operands = 0;
  double worst = 0;
  /// Why nothing was compared; otherwise empty.
  std::string skipped;
};

/// Checks the gradients of result 0 times two random cotangents, on `device`, with respect to every
/// floating operand of the sample, in f64.
JacobianReport check_jacobian(const Op& op, const OpSample& sample, uint64_t seed,
                              Device device = cpu);

}  // namespace weft
