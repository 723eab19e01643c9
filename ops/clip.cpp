// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "ops/engine/tensor_body.h"
#include "ops/functions.h"
#include "ops/promotion.h"
#include "weft/error.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"

namespace weft {

namespace {

/// NaN stays; a lower bound above the upper one has no effect.
struct ClipToBounds {
  double low, high;
  template <class T> WEFT_FN T operator()(T a) const {
    const T raised = a < static_cast<T>(low) ? static_cast<T>(low) : a;
    return raised > static_cast<T>(high) ? static_cast<T>(high) : raised;
  }
};

}  // namespace

/// values: ClipToBounds.
static const Op clip_numbers_op = floating_elementwise<ClipToBounds, 1>({
    .name = "clip_numbers",
    .backward =
        [](const Grad& g) {
          const auto [low, high] = unpack<ClipToBounds>(g.attributes().values);
          const Tensor inside = logical_and(greater_equal(g.in(0), low), less_equal(g.in(0), high));
          g.give(0, mul(g.grad(), cast(inside, g.grad().dtype())));
        },
    .samples = {{.shapes = {{5, 7}}, .attributes = {.values = {-0.5, 1}}}},
});

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

/// Whether a bound is absent or a number; NaN, which makes all elements NaN, is not.
static bool is_number(const std::optional<Operand>& bound) {
  return !bound || (bound->is_number() && !std::isnan(bound->number.value));
}

Tensor clip(const Tensor& a, const std::optional<Operand>& low,
            const std::optional<Operand>& high) {
  check_tensor("clip", a);
  const std::optional<Operand> least = bound_within(a, low, true);
  const std::optional<Operand> most = bound_within(a, high, false);
  if (!least && !most) return clone(a);
  if (is_floating(a.dtype()) && is_number(least) && is_number(most)) {
    const double infinity = std::numeric_limits<double>::infinity();
    const ClipToBounds bounds{least ? least->number.value : -infinity,
                              most ? most->number.value : infinity};
    return clip_numbers_op({a}, {.values = pack_values(bounds)});
  }
  const Tensor raised = least ? maximum(a, next_to(a, *least)) : a;
  return most ? minimum(raised, next_to(raised, *most)) : raised;
}

Tensor reciprocal(const Tensor& a) { return div(1, a); }

}  // namespace weft
