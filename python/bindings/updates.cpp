// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/updates.h"

#include "python/bindings/bindings.h"
#include "python/bindings/changed.h"

namespace weft::python {

void bind_updates(py::module_& m) {
  m.def(
      "adamw_",
      [](const py::object& parameter, const Tensor& mean, const Tensor& square,
         const Tensor& gradient, const Tensor& scale, double lr, std::pair<double, double> betas,
         double eps, double weight_decay, int64_t step) {
        const AdamWStep numbers{.learning_rate = lr,
                                .beta1 = betas.first,
                                .beta2 = betas.second,
                                .eps = eps,
                                .weight_decay = weight_decay,
                                .step = step};
        changed(parameter,
                [&](const Tensor& x) { adamw_(x, mean, square, gradient, scale, numbers); });
      },
      py::arg("parameter"), py::arg("m"), py::arg("v"), py::arg("gradient"),
      py::arg("gradient_scale"), py::kw_only(), py::arg("lr") = 1e-3,
      py::arg("betas") = std::pair(0.9, 0.999), py::arg("eps") = 1e-8,
      py::arg("weight_decay") = 0.01, py::arg("step") = 1,
      with_rule("adamw_",
                "One AdamW step (Loshchilov and Hutter, 2019), in place on parameter, m "
                "and v; the gradient counts times the one element of gradient_scale"));
  m.def(
      "sgd_",
      [](const py::object& parameter, const Tensor& velocity, const Tensor& gradient,
         const Tensor& scale, double lr, double momentum, double weight_decay) {
        changed(parameter, [&](const Tensor& x) {
          sgd_(x, velocity, gradient, scale, lr, momentum, weight_decay);
        });
      },
      py::arg("parameter"), py::arg("velocity"), py::arg("gradient"), py::arg("gradient_scale"),
      py::arg("lr"), py::arg("momentum") = 0.0, py::arg("weight_decay") = 0.0,
      with_rule("sgd_momentum_",
                "velocity = momentum * velocity + gradient * gradient_scale + "
                "weight_decay * parameter; parameter -= lr * velocity, in place"));
  bind_change(m, "scale_", &scale_, with_rule("scale_", "x *= factor, of one element, in place"),
              py::arg("factor"));
  bind_change(
      m, "add_scaled_", &add_scaled_,
      with_rule("add_scaled_", "x += other * scale * factor in place, where scale has one element"),
      py::arg("other"), py::arg("scale"), py::arg("factor") = 1.0);
}

}  // namespace weft::python
