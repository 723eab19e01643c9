// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/dtype.h"
#include "weft/export.h"

namespace weft {

/// What the calls of one op on tensors of one dtype take on this rank.
struct OpWork {
  std::string op;
  /// Of operand 0, or of the result where there is no operand.
  DType dtype;
  int64_t calls = 0;
  /// Multiplications and additions of matrix products, each counted.
  double operations = 0;
  /// Read and written by all ops, products among them.
  int64_t bytes = 0;
};

/// Writes down the work that ops of the calling rank would do on device `meta` while it lives: what
/// a model takes on a machine that is not there. One at a time.
class WEFT_API WorkLog {
 public:
  WorkLog();
  ~WorkLog();
  WorkLog(const WorkLog&) = delete;
  WorkLog& operator=(const WorkLog&) = delete;

  std::vector<OpWork> ops;
};

}  // namespace weft
