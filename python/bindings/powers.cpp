// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/powers.h"

#include "python/bindings/bindings.h"
#include "python/bindings/lock.h"
#include "python/bindings/operands.h"
#include "python/bindings/rule_text.h"

namespace weft::python {

/// Numbers are used as exponents and bases without making a tensor of them.
Tensor pow_operands(const Operand& a, const Operand& b) {
  if (!a.is_number() && b.is_number()) return pow(a.tensor, b.number);
  if (a.is_number() && !b.is_number()) return pow(a.number, b.tensor);
  return of_operands("pow", pow, a, b);
}

static constexpr OfOne kPowersOfOne[] = {
    {"expm1", expm1, "expm1", "exp(x) - 1, exact for small x"},
    {"log1p", log1p, "log1p", "log(1 + x), exact for small x"},
    {"log2", log2, "log2", "The logarithm of x to base 2"},
    {"log10", log10, "log10", "The logarithm of x to base 10"},
};

static constexpr OfTwo kPowersOfTwo[] = {
    {"logaddexp", logaddexp, "logaddexp", "log(exp(x1) + exp(x2)), without overflow on the way"},
};

void bind_powers(py::module_& m) {
  bind_functions(m, kPowersOfOne);
  bind_functions(m, kPowersOfTwo);
  m.def(
      "pow", &pow_operands, Released(), py::arg("x1"), py::arg("x2"),
      with_rule("pow", "x1 ** x2. Integers wrap, and a negative exponent gives the integer part"));
}

}  // namespace weft::python
