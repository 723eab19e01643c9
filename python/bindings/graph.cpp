// SPDX-License-Identifier: Apache-2.0
#include "weft/graph.h"

#include "python/bindings/bindings.h"
#include "python/bindings/lock.h"

namespace weft::python {

static void run(Graph& graph, const py::function& work) {
  const Unlocked unlocked;
  graph.run([&] {
    const Locked lock;
    work();
  });
}

void bind_graph(py::module_& m) {
  py::class_<Graph>(m, "Graph",
                    "Work of one GPU that is recorded once and then played: one call of the host "
                    "instead of one a kernel. It reads and writes the same memory each time: fill "
                    "tensors in place (copy_) before it runs. Belongs to its thread.")
      .def(py::init<Device>(), py::arg("device"))
      .def("run", &run, py::arg("work"),
           "Calls `work` twice as it is, then to record it; from then on plays the record instead. "
           "Tensors that it reads, and modules and optimizers that it uses, are kept as long as "
           "the graph. It neither copies between the host and the GPU nor draws random numbers.")
      .def_property_readonly("is_recorded", &Graph::is_recorded)
      .def_property_readonly("device", &Graph::device);
}

}  // namespace weft::python
