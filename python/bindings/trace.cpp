// SPDX-License-Identifier: Apache-2.0
#include "weft/trace.h"

#include "python/bindings/bindings.h"
#include "python/bindings/lock.h"

namespace weft::python {

void bind_trace(py::module_& m) {
  py::class_<TraceScope>(m, "_TraceScope")
      .def(py::init<int64_t>(), py::arg("most_events"))
      .def("events", &TraceScope::events)
      .def("dropped", &TraceScope::dropped)
      .def("write", &TraceScope::write, Released(), py::arg("world"), py::arg("path"));
}

}  // namespace weft::python
