// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/dtype.h"
#include "weft/export.h"

namespace weft {

/// The work of all calls of one op on tensors of one dtype, on this rank.
struct OpWork {
  std::string op;
  /// Dtype of operand 0, or of the result when there are no operands.
  DType dtype;
  int64_t calls = 0;
  /// Multiplications and additions of matrix products, counted separately.
  double operations = 0;
  /// Bytes read and written, by matrix products too.
  int64_t bytes = 0;
};

/// Records the work that ops of the calling rank would do on device `meta` while it exists, e.g.
/// the work of a model on a machine you do not have. At most one per rank at a time.
class WEFT_API WorkLog {
 public:
  WorkLog();
  ~WorkLog();
  WorkLog(const WorkLog&) = delete;
  WorkLog& operator=(const WorkLog&) = delete;

  std::vector<OpWork> ops;
};

}  // namespace weft
