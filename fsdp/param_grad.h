// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "fsdp/buffers.h"
#include "fsdp/fsdp_param.h"

namespace weft::fsdp {

/// The gradient of one parameter: where it lies, and how far it is.
struct ParamGrad {
  /// How far this backward is with a gradient. `missing`: complete without a contribution.
  enum class Progress : uint8_t { expected, written, complete, missing };
  /// The sum in the final memory. `own`: still to be summed over replicas, if there are any.
  /// `of_replicas`: that sum.
  enum class Sum : uint8_t { none, own, of_replicas };

  FsdpParam* param;
  int bucket = 0;
  /// In the buffer, and in the middle memory between two scatters.
  Region unsharded, middle;
  /// Bytes from the start of the final memory.
  size_t offset = 0;
  Progress progress = Progress::expected;
  Sum sum = Sum::none;
  /// Sums of earlier micro-steps wait for a reduction, in the buffer or in the middle memory.
  bool in_buffer = false;
  bool in_middle = false;
  /// The sum in the buffer was read from the file, which still holds it.
  bool from_file = false;

  bool is_over() const { return progress >= Progress::complete; }
};

inline auto is_in(int bucket) {
  return [bucket](const ParamGrad& grad) { return grad.bucket == bucket; };
}

}  // namespace weft::fsdp
