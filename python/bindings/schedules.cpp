// SPDX-License-Identifier: Apache-2.0
#include "weft/schedules.h"

#include "python/bindings/bindings.h"

namespace weft::python {

void bind_schedules(py::module_& m) {
  py::class_<WarmupCosine>(
      m, "WarmupCosine",
      "A learning rate by step, counted from 0: it grows evenly to `peak`, "
      "reached after `warmup` steps, and falls along half a cosine to `floor`, "
      "reached at step `total` and kept")
      .def(py::init([](double peak, int64_t warmup, int64_t total, double floor) {
             return WarmupCosine{peak, warmup, total, floor};
           }),
           py::arg("peak"), py::arg("warmup"), py::arg("total"), py::arg("floor") = 0.0)
      .def("__call__", &WarmupCosine::operator(), py::arg("step"),
           "ValueError for a negative step or a warm-up longer than the whole");
}

}  // namespace weft::python
