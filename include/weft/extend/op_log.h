// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/dtype.h"
#include "weft/export.h"

namespace weft {

/// A collective step of a redistribution.
struct MovementStep {
  /// "all_gather", "reduce_scatter", "all_reduce", "all_to_all" or "exchange".
  std::string kind;
  /// Names of the axes over which it runs, joined by "+".
  std::string axes;
  /// Placements before and after, e.g. "[S(0), R]".
  std::string from, to;
  /// Bytes that this rank receives from others, and the predicted time.
  int64_t bytes = 0;
  double seconds = 0;
};

/// A redistribution that crossed ranks, or on device `meta` would have crossed them.
struct Movement {
  /// The op that asked for it, "redistribute", or "backward" for the gradient of a leaf.
  std::string what;
  /// The Context::scope in which the redistribution, or the op that it is the gradient of, was
  /// recorded.
  const void* scope = nullptr;
  bool backward = false;
  std::vector<MovementStep> steps = {};
};

/// One of these movements, in parts that overlap with a product (`SplitProducts`).
struct SplitMovement {
  std::string axes;
  int parts = 1;
  /// Received by this rank, in all parts.
  int64_t bytes = 0;
  /// The product's multiplications and additions, counted separately, and bytes read and written.
  double operations = 0;
  int64_t product_bytes = 0;
  bool operator==(const SplitMovement&) const = default;
};

/// The work of all calls of one op on tensors of one dtype, on this rank.
struct OpWork {
  std::string op;
  /// Dtype of operand 0, or of the result when there are no operands.
  DType dtype;
  int64_t calls = 0;
  /// Multiplications and additions of matrix products, counted separately.
  double operations = 0;
  /// Bytes read and written, by matrix products too, and those of the largest call.
  int64_t bytes = 0, largest = 0;
};

/// Records what ops of the calling rank move and, on device `meta`, the work that they would do,
/// e.g. that of a model on a machine you do not have, while it exists. At most one per rank at a
/// time.
class WEFT_API OpLog : NotCopied {
 public:
  OpLog();
  ~OpLog();

  std::vector<Movement> movements;
  std::vector<SplitMovement> splits;
  std::vector<OpWork> work;
};

}  // namespace weft
