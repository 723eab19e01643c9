// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "weft/export.h"
#include "weft/extend/op.h"
#include "weft/mesh.h"

namespace weft {

// Checks for the tests of an op, with any test framework: `gradcheck` for its backward, `sweep` for
// its rule. Both run the op's `.samples`; without samples, one that is made from its rule.

/// The comparison of an op's backward with central differences of its forward.
struct WEFT_API GradcheckReport {
  /// The number of operands compared.
  int operands = 0;
  /// The largest |gradient - quotient| / max |quotient|, and what is allowed: 1e-6, or 1e-2 for an
  /// op whose operands must be f32.
  double worst = 0, bound = 1e-6;
  /// The reason why nothing was compared; otherwise empty.
  std::string skipped;

  bool ok() const { return operands > 0 && worst <= bound; }
  GradcheckReport& operator+=(const GradcheckReport& other);
};

/// Checks the gradients of result 0 times two random cotangents, on `device`, with respect to every
/// floating operand, in f64 unless the op does not take it.
WEFT_API GradcheckReport gradcheck(const Op& op, uint64_t seed = 5, Device device = cpu);

/// Compares the derivative of the op's gradient, as `create_graph` records it, with central
/// differences of its plain backward, in f64. Returns what differs first, "" if nothing does, or
/// "skipped: " and why nothing was compared.
WEFT_API std::string gradgradcheck(const Op& op, uint64_t seed = 5, Device device = cpu);

/// Compares the op's forward with its definition, for all samples. Returns what differs first, ""
/// if nothing does.
WEFT_API std::string check_definition(const Op& op, uint64_t seed = 5, Device device = cpu);

/// The layouts in which an op is tested.
struct SweepOptions {
  std::vector<MeshAxis> axes;
  /// Above this number of combinations of operand layouts, they are sampled, so that every two
  /// layouts of two operands occur together if `most` and `percent` allow it.
  int64_t most = 20'000;
  /// The percentage of these that run.
  int percent = 100;
  /// Selects the combinations and the values of operands.
  uint64_t seed = 1;
  /// The device of the sharded tensors; the reference is computed on the CPU.
  Device device = cpu;
};

struct WEFT_API SweepReport {
  /// The number of combinations, and of those that ran.
  int64_t all = 0, ran = 0;
  /// Combinations with a gradient, those that need no traffic by the rule, and those refused
  /// because an operand that is changed in place has an unsuitable layout.
  int64_t gradients = 0, free = 0, refused = 0;
  /// The number of combinations that are wrong on the rank with most of them, and descriptions of
  /// the first few.
  int64_t wrong = 0;
  std::vector<std::string> mismatches;

  bool ok() const { return ran > 0 && wrong == 0; }
  SweepReport& operator+=(const SweepReport& other);
};

/// Runs each sample of the op with its operands in all those layouts, on threads, and compares
/// results, gradients, layouts and traffic with one device and the rule.
WEFT_API SweepReport sweep(const Op& op, const SweepOptions& options);
/// The same on meshes of 4, 2 x 2, 3 and 2 x 1 x 2 ranks.
WEFT_API SweepReport sweep(const Op& op);

/// Compares second derivatives of result 0 in f64, with operands and the result's gradient in those
/// layouts, with those on one device, which `gradgradcheck` compares with central differences. Runs
/// nothing for an op without them.
WEFT_API SweepReport sweep_second(const Op& op, const SweepOptions& options);

/// The value of WEFT_SWEEP_PERCENT, 100 unless set: the percentage that `sweep(op)` runs.
WEFT_API int sweep_percent();

/// "2 operands, worst error 3e-10, bound 1e-6" or why nothing was compared.
WEFT_API std::ostream& operator<<(std::ostream& out, const GradcheckReport& report);
/// "324 of 324 combinations, 0 wrong", and a line for each mismatch.
WEFT_API std::ostream& operator<<(std::ostream& out, const SweepReport& report);

}  // namespace weft
