// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/operands.h"

#include "python/bindings/bindings.h"
#include "python/bindings/lock.h"
#include "weft/error.h"
#include "weft/ops/elementwise.h"

namespace weft::python {

[[noreturn]] static void fail_numbers(const char* what) {
  fail(what, ": both operands are numbers, expected at least one tensor");
}

Tensor of_operands(const char* what, TensorFunction function, const Operand& a, const Operand& b) {
  if (!a.is_number() && !b.is_number()) [[likely]]
    return function(a.tensor, b.tensor);
  if (a.is_number() && b.is_number()) fail_numbers(what);
  if (a.is_number()) return function(next_to(b.tensor, a), b.tensor);
  return function(a.tensor, next_to(a.tensor, b));
}

void bind_functions(py::module_& m, std::span<const OfOne> functions) {
  for (const OfOne& f : functions) {
    m.def(
        f.name, [function = f.function](const Tensor& x) { return function(x); }, Released(),
        py::arg("x"), with_rule(f.op, f.text));
  }
}

void bind_functions(py::module_& m, std::span<const OfTwo> functions) {
  for (const OfTwo& f : functions) {
    m.def(
        f.name,
        [f](const Operand& a, const Operand& b) { return of_operands(f.name, f.function, a, b); },
        Released(), py::arg("x1"), py::arg("x2"), with_rule(f.op, f.text));
  }
}

Tensor add_operands(const Operand& a, const Operand& b) {
  if (a.is_number() && b.is_number()) fail_numbers("add");
  if (a.is_number()) return add(b.tensor, a.number);
  return b.is_number() ? add(a.tensor, b.number) : add(a.tensor, b.tensor);
}

Tensor subtract_operands(const Operand& a, const Operand& b) {
  if (a.is_number() && b.is_number()) fail_numbers("subtract");
  if (a.is_number()) return sub(a.number, b.tensor);
  return b.is_number() ? sub(a.tensor, b.number) : sub(a.tensor, b.tensor);
}

Tensor multiply_operands(const Operand& a, const Operand& b) {
  if (a.is_number() && b.is_number()) fail_numbers("multiply");
  if (a.is_number()) return mul(b.tensor, a.number);
  return b.is_number() ? mul(a.tensor, b.number) : mul(a.tensor, b.tensor);
}

Tensor divide_operands(const Operand& a, const Operand& b) {
  if (a.is_number() && b.is_number()) fail_numbers("divide");
  if (a.is_number()) return div(a.number, b.tensor);
  return b.is_number() ? div(a.tensor, b.number) : div(a.tensor, b.tensor);
}

}  // namespace weft::python
