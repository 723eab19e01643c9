// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "ops/engine/op_body.h"
#include "ops/engine/tensor_body.h"

namespace weft {

class KeptResults;

struct Results {
  std::array<Tensor, kMaxResults> tensors;
  int count = 0;
};

/// Runs one op call: finds or makes the route, moves operands, runs the kernel, records the call.
Results dispatch(const std::shared_ptr<const OpBody>& op, std::span<const Tensor> operands,
                 const Attributes& attributes);

/// The destination of a result; none if `tensor` is empty.
struct Place {
  Tensor tensor = {};
  /// Adds to the existing values.
  bool accumulate = false;
  /// Set by the call: the kernel wrote there directly, not to scratch memory that was copied.
  bool direct = false;
};

/// The same without recording. Results with a place are written there; returns the others.
Results dispatch_into(const std::shared_ptr<const OpBody>& op, std::span<const Tensor> operands,
                      const Attributes& attributes, std::span<Place> places);

/// Writes or adds `value` to `destination`, after redistributing it to that layout.
void add_into(const Tensor& destination, bool accumulate, const Tensor& value);

/// Makes the results of a call of a repeated run from those that the first run kept; false if it
/// kept none.
bool take_kept(KeptResults& kept, const OpBody& op, Results& results);
/// Keeps the results of a call of the first run, if they are asked for.
void keep_results(KeptResults& kept, const OpBody& op, const Results& results);

}  // namespace weft
