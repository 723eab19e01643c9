// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/tensor_body.h"
#include "ops/promotion.h"
#include "weft/error.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"

namespace weft {

Tensor next_to(const Tensor& a, const Operand& b) {
  return b.is_number() ? number_like(a, b.number) : b.tensor;
}

/// Drops a bound that keeps all values of an integer dtype.
static std::optional<Operand> bound_within(const Tensor& a, const std::optional<Operand>& bound,
                                           bool is_low) {
  const DType dtype = a.dtype();
  if (!bound || !bound->is_number() || is_floating(dtype) || dtype == DType::boolean) return bound;
  const double value = bound->number.value;
  const IntegerRange range = range_of(dtype);
  if (bound->number.is_rounded() && holds(dtype, bound->number)) return bound;
  if (is_low ? value <= range.least : value >= range.end - 1) return {};
  if (is_low ? value >= range.end : value < range.least) {
    fail("clip: the bound is ", value, ", expected one that a tensor of ", dtype, " holds");
  }
  return bound;
}

Tensor clip(const Tensor& a, const std::optional<Operand>& low,
            const std::optional<Operand>& high) {
  check_tensor("clip", a);
  const std::optional<Operand> least = bound_within(a, low, true);
  const std::optional<Operand> most = bound_within(a, high, false);
  if (!least && !most) return clone(a);
  const Tensor raised = least ? maximum(a, next_to(a, *least)) : a;
  return most ? minimum(raised, next_to(raised, *most)) : raised;
}

Tensor reciprocal(const Tensor& a) { return div(1, a); }

}  // namespace weft
