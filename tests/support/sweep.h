// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "weft/extend/op.h"
#include "weft/mesh.h"

namespace weft {

/// The layouts in which an op is tested.
struct SweepOptions {
  std::vector<MeshAxis> axes;
  /// Above this number of combinations of operand layouts, they are sampled so that every two
  /// layouts of two operands occur together.
  int64_t most = 20'000;
  /// The percentage of these that run.
  int percent = 100;
  /// Selects the combinations and the values of operands.
  uint64_t seed = 1;
  /// The device of the sharded tensors; the reference is computed on the CPU.
  Device device = cpu;
};

struct SweepReport {
  /// The number of combinations, and of those that ran.
  int64_t all = 0;
  int64_t ran = 0;
  /// Combinations with a gradient, with traffic that the rule forbids, and refused because an
  /// operand that is changed in place has an unsuitable layout.
  int64_t gradients = 0;
  int64_t free = 0;
  int64_t refused = 0;
  /// The number of combinations that are wrong on some rank, and descriptions of the first few.
  int64_t wrong = 0;
  std::vector<std::string> mismatches;

  SweepReport& operator+=(const SweepReport& other);
};

/// Runs each sample of the op with its operands in all those layouts, on threads, and compares
/// results, gradients, layouts and traffic with one device and the rule.
SweepReport sweep(const Op& op, const SweepOptions& options);

/// The value of WEFT_SWEEP_PERCENT, 100 unless set.
int sweep_percent();

}  // namespace weft
