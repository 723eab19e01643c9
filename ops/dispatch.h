// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "ops/op_body.h"
#include "ops/tensor_body.h"

namespace weft {

struct Results {
  std::array<Tensor, kMaxResults> tensors;
  int count = 0;
};

/// One op call: finds or makes the route, moves operands, runs the kernel, records it.
Results dispatch(const std::shared_ptr<const OpBody>& op, std::span<const Tensor> operands,
                 const Attributes& attributes);

/// Where a result of a call goes, if it is told.
struct Place {
  Tensor tensor = {};
  /// Add to what is there.
  bool accumulate = false;
  /// Out: the kernel wrote there, rather than scratch memory that was copied.
  bool direct = false;
};

/// The same, unrecorded, with the results that have a place written there. Gives the others.
Results dispatch_into(const std::shared_ptr<const OpBody>& op, std::span<const Tensor> operands,
                      const Attributes& attributes, std::span<Place> places);

/// Writes or adds `value` into memory that is there, redistributing it to that layout first.
void add_into(const Tensor& destination, bool accumulate, const Tensor& value);

}  // namespace weft
