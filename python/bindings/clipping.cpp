// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <variant>
#include <vector>

#include "python/bindings/bindings.h"
#include "python/bindings/modules.h"
#include "weft/optimizers.h"

namespace weft::python {

/// Order of a norm: a number, or "inf".
static double order_of(const char* what, const py::object& given) {
  try {
    return py::float_(given);
  } catch (const py::error_already_set&) {
    fail(what, ": norm_type is ", py::repr(given), ", expected a number or 'inf'");
  }
}

static Tensor checked(const char* what, const Tensor& norm, bool error_if_nonfinite) {
  const double number = error_if_nonfinite ? norm.item() : 0;
  if (!std::isfinite(number)) fail_call(what, "the norm of the gradients is ", number);
  return norm;
}

void bind_clipping(py::module_& m) {
  def(m, "gradient_norm(parameters, norm_type=2.0)",
      "The norm of all gradients together, whatever their layouts and meshes: one element, "
      "float32, equal on each rank. One all-reduce",
      [](const py::object& parameters, const py::object& norm_type) {
        const double order = order_of("gradient_norm", norm_type);
        const auto all = parameters_of(parameters);
        return released([&] { return gradient_norm(all, order); });
      });
  def(m, "get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None)",
      "The norm of all elements of the tensors together; see gradient_norm",
      [](const std::variant<Tensor, Tensors>& tensors, const py::object& norm_type,
         bool error_if_nonfinite, const py::object&) {
        const auto* one = std::get_if<Tensor>(&tensors);
        const Tensors all = one ? Tensors{*one} : std::get<Tensors>(tensors);
        const double order = order_of("get_total_norm", norm_type);
        return released(
            [&] { return checked("get_total_norm", total_norm(all, order), error_if_nonfinite); });
      });
  def(m, "clip_scale(norm, max_norm)", &clip_scale,
      "min(1, max_norm / (norm + 1e-6)): what Optimizer.step takes, so that clipping is no pass "
      "over the gradients");
  def(m,
      "clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, "
      "foreach=None)",
      "Scales all gradients so that their norm is at most max_norm; gives the norm before: that of "
      "the gradients whatever their layouts and meshes. One all-reduce. norm_type: above 0, inf "
      "for the greatest element. RuntimeError, when asked for, where the norm is no finite number",
      [](const py::object& parameters, double max_norm, const py::object& norm_type,
         bool error_if_nonfinite, const py::object&) {
        const double order = order_of("clip_grad_norm_", norm_type);
        const auto all = parameters_of(parameters);
        return released([&] {
          const Tensor norm = gradient_norm(all, order);
          checked("clip_grad_norm_", norm, error_if_nonfinite);
          clip_grads_with_norm(all, max_norm, norm);
          return norm.item();
        });
      });
  def(m, "clip_grads_with_norm_(parameters, max_norm, total_norm, foreach=None)",
      "Scales all gradients so that their norm, which is `total_norm`, is at most max_norm",
      [](const py::object& parameters, double max_norm, const Tensor& norm, const py::object&) {
        const auto all = parameters_of(parameters);
        released([&] { clip_grads_with_norm(all, max_norm, norm); });
      });
  def(m, "clip_grad_value_(parameters, clip_value, foreach=None)",
      "Limits every element of the gradients to [-clip_value, clip_value]. No traffic",
      [](const py::object& parameters, double clip_value, const py::object&) {
        const auto all = parameters_of(parameters);
        released([&] { clip_grad_value(all, clip_value); });
      });
}

}  // namespace weft::python
