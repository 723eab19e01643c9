// SPDX-License-Identifier: Apache-2.0
#include "weft/init.h"

#include "python/bindings/bindings.h"
#include "python/bindings/instances.h"
#include "python/bindings/lock.h"

namespace weft::python {

/// Binds an initializer, which returns what it fills.
template <class... Args, class... Extra>
static void bind_filling(py::module_& m, const char* name,
                         void (*function)(const init::Target&, Args...), const Extra&... extra) {
  m.def(
      name,
      [function](const py::object& tensor, std::decay_t<Args>... args) {
        auto* parameter = bound_value<Parameter>(tensor);
        const init::Target to =
            parameter ? init::Target(*parameter) : init::Target(tensor.cast<Tensor>());
        released([&] { function(to, args...); });
        return tensor;
      },
      py::arg("tensor"), extra...);
}

void bind_init(py::module_& m) {
  const auto a = py::arg("a") = 0.0, gain = py::arg("gain") = 1.0;
  const auto mode = py::arg("mode") = "fan_in";
  const auto nonlinearity = py::arg("nonlinearity") = "leaky_relu";
  bind_filling(m, "_constant_", &init::constant_, py::arg("val"));
  bind_filling(m, "_init_normal_", &init::normal_, py::arg("mean") = 0.0, py::arg("std") = 1.0);
  bind_filling(m, "_init_uniform_", &init::uniform_, a, py::arg("b") = 1.0);
  bind_filling(m, "_xavier_uniform_", &init::xavier_uniform_, gain);
  bind_filling(m, "_xavier_normal_", &init::xavier_normal_, gain);
  bind_filling(m, "_kaiming_uniform_", &init::kaiming_uniform_, a, mode, nonlinearity);
  bind_filling(m, "_kaiming_normal_", &init::kaiming_normal_, a, mode, nonlinearity);
  m.def("_calculate_gain", &init::calculate_gain, py::arg("nonlinearity"),
        py::arg("param") = py::none());
}

}  // namespace weft::python
