// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "weft/context.h"
#include "weft/tensor.h"

namespace weft {

/// Computes the gradients of all leaves that `roots` depend on; an empty root gradient means 1.
WEFT_API void backward(const Tensors& roots, const Tensors& gradients);

/// Counters of the calling rank's tape and op engine since the rank started.
struct EngineStatistics {
  int64_t calls = 0, route_hits = 0, route_misses = 0, route_evictions = 0;
  /// Gradient contributions that the op computing them wrote directly into a sink's memory.
  int64_t gradients_in_place = 0;
  /// Gradient contributions that were copied or added from scratch memory, and their bytes.
  int64_t gradient_copies = 0, gradient_copy_bytes = 0;
  /// Implicit traffic: redistributions that ops required, and the bytes received.
  int64_t implicit_redistributions = 0, implicit_bytes = 0;
};
WEFT_API const EngineStatistics& engine_statistics();

/// Returns the implicit traffic of the calling rank, a line per op: "op: 2 times, 64 bytes".
WEFT_API std::string implicit_traffic();

}  // namespace weft
