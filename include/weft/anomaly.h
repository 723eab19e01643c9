// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "weft/context.h"
#include "weft/export.h"

namespace weft {

class CallWatch;

/// Returns the path of a module by its address, as `Context::scope` holds it; see `module_paths`.
using ScopeNames = std::function<std::string(const void* scope)>;

/// Looks at all op calls of the calling rank while it exists. One at a time.
class WEFT_API WatchScope : NotCopied {
 public:
  ~WatchScope();

 protected:
  explicit WatchScope(std::shared_ptr<CallWatch> watch);

 private:
  std::shared_ptr<CallWatch> watch_;
};

/// Throws std::runtime_error at the first op whose results on this rank have NaN or infinity while
/// this rank's parts of its operands, and the numbers given to it, have none: it names the op,
/// whether it ran in forward or in the gradient of another op, the module and the rank. Each call
/// waits for its results and reads its operands and results once more.
class WEFT_API DetectAnomaly : public WatchScope {
 public:
  explicit DetectAnomaly(ScopeNames names = {});
};

struct ShadowOptions {
  /// Checks one call in `every`, counted alike on all ranks.
  int64_t every = 1;
  /// Errors allowed, relative to the greatest element: of results, and of gradients, which are
  /// compared with central differences in f64.
  /// An op that takes no f64 is allowed 30 times that, and so are results in 16 bits.
  double result = 1e-3, gradient = 1e-3;
};

/// Computes a sample of the op calls again, each on whole tensors on one device by the op's
/// definition, or by its forward in an op without one, and compares: results, and gradients along a
/// direction with central differences. Throws std::runtime_error naming the first op that is off,
/// its module and the rank. All ranks of a mesh enter and leave it together, and gather what they
/// compare. Gradients at a corner, as that of relu at 0, are not compared. A checked call costs
/// about five whole calls on each rank.
class WEFT_API ShadowScope : public WatchScope {
 public:
  explicit ShadowScope(const ShadowOptions& options = {}, ScopeNames names = {});
};

}  // namespace weft
