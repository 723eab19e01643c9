// SPDX-License-Identifier: Apache-2.0
#include "weft/graph.h"

#include "python/bindings/bindings.h"
#include "python/bindings/lock.h"

namespace weft::python {

namespace {

/// A graph keeps the recorded function, and with it the objects that its variables refer to.
struct GraphObject {
  Graph graph;
  py::function recorded;
};

}  // namespace

static void run_graph(GraphObject& self, const py::function& work) {
  const bool was_recorded = self.graph.is_recorded();
  {
    const Unlocked unlocked;
    self.graph.run([&] {
      const Locked lock;
      work();
    });
  }
  if (!was_recorded && self.graph.is_recorded()) self.recorded = work;
}

void bind_graph(py::module_& m) {
  py::class_<GraphObject>(
      m, "Graph",
      "Work of one GPU that is recorded once and then played: one call of the host "
      "instead of one a kernel. It reads and writes the same memory each time: fill "
      "tensors in place (copy_) before it runs. Belongs to its thread.")
      .def(py::init([](Device device) {
             return std::unique_ptr<GraphObject>(new GraphObject{Graph(device), {}});
           }),
           py::arg("device"))
      .def("run", &run_graph, py::arg("work"),
           "Calls `work` twice as it is, then to record it; from then on plays the record instead, "
           "which keeps `work`: leave what its variables name as it is. It neither copies between "
           "the host and the GPU nor draws random numbers, and ids are not checked in the record. "
           "Ranks exchange in it only as processes with a GPU each; all of them record and play "
           "the same.")
      .def_property_readonly("is_recorded",
                             [](const GraphObject& self) { return self.graph.is_recorded(); })
      .def_property_readonly("device", [](const GraphObject& self) { return self.graph.device(); });
}

}  // namespace weft::python
