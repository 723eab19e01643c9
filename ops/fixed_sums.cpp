// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/fixed_sums.h"

#include <algorithm>
#include <utility>

#include "ops/engine/tensor_body.h"

namespace weft {

WEFT_STATIC_TLS static thread_local const FixedSums* current_sums = nullptr;

FixedSums::FixedSums(std::vector<std::string> axes, int64_t first_row)
    : axes_(std::move(axes)), first_row_(first_row), outer_(std::exchange(current_sums, this)) {}

FixedSums::~FixedSums() { current_sums = outer_; }

const FixedSums* FixedSums::current() { return current_sums; }

Tensor FixedSums::reduced(const Tensor& gradient) const {
  if (axes_.empty() || !gradient.is_sharded() || !gradient.sharding().has_partial()) {
    return gradient;
  }
  const Sharding from = gradient.sharding();
  Pattern pattern = from.pattern();
  bool changes = false;
  for (int axis = 0; axis < from.axes(); ++axis) {
    if (!from[axis].is_partial()) continue;
    if (std::ranges::find(axes_, from.mesh().axis_name(axis)) == axes_.end()) continue;
    pattern.set(axis, Replicate());
    changes = true;
  }
  if (!changes) return gradient;
  return redistributed(gradient, Sharding::of(from.mesh(), pattern));
}

}  // namespace weft
