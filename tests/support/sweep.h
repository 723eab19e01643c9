// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "weft/mesh.h"
#include "weft/op.h"

namespace weft {

/// Which layouts an op is tried in.
struct SweepOptions {
  std::vector<MeshAxis> axes;
  /// More combinations of a sample's operands than this are sampled, so that every two layouts of
  /// two operands meet.
  int64_t most = 20'000;
  /// Of those, how many in 100 run.
  int percent = 100;
  /// At most so many of the sampled.
  uint64_t seed = 1;
  /// Where the laid-out tensors are; what they are compared with is computed on the CPU.
  Device device = cpu;
};

struct SweepReport {
  /// Combinations that there are, and that ran.
  int64_t all = 0;
  int64_t ran = 0;
  /// With a gradient, with traffic that the rule forbids, and refused because an operand that is
  /// changed in place lies wrongly.
  int64_t gradients = 0;
  int64_t free = 0;
  int64_t refused = 0;
  /// Wrong ones on some rank, and the first few of them in words.
  int64_t wrong = 0;
  std::vector<std::string> mismatches;

  SweepReport& operator+=(const SweepReport& other);
};

/// Runs each sample of the op with its operands laid out in all those ways, on threads, and
/// compares results, gradients, layouts and traffic with one device and the rule.
SweepReport sweep(const Op& op, const SweepOptions& options);

/// WEFT_SWEEP_PERCENT, 100 unless set.
int sweep_percent();

}  // namespace weft
