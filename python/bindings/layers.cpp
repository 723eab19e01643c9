// SPDX-License-Identifier: Apache-2.0
#include "weft/layers.h"

#include "python/bindings/modules.h"

namespace weft::python {

void bind_layers(py::module_& m) {
  ModuleClass<Linear>(m, "Linear", py::is_final(),
                      "[..., in] -> [..., out]: x weight^T (+ bias). Parameters: weight [out, in], "
                      "normal with `std`; bias [out], zeros")
      .def(py::init<int64_t, int64_t, bool, double>(), py::arg("in_features"),
           py::arg("out_features"), py::arg("bias") = true, py::arg("std") = 0.02);
  ModuleClass<Embedding>(m, "Embedding", py::is_final(),
                         "ids [...] -> [..., dim]. Parameter: weight [vocabulary, dim], normal")
      .def(py::init<int64_t, int64_t, double>(), py::arg("num_embeddings"),
           py::arg("embedding_dim"), py::arg("std") = 0.02);
  ModuleClass<RMSNorm>(m, "RMSNorm", py::is_final(),
                       "[..., dim] -> [..., dim]: rms_norm. Parameter: weight, ones")
      .def(py::init<int64_t, double>(), py::arg("dim"), py::arg("eps") = 1e-5);
  ModuleClass<LayerNorm>(
      m, "LayerNorm", py::is_final(),
      "[..., dim] -> [..., dim]: layer_norm. Parameters: weight, ones; bias, zeros")
      .def(py::init<int64_t, double>(), py::arg("dim"), py::arg("eps") = 1e-5);
  ModuleClass<Dropout>(m, "Dropout", py::is_final(),
                       "`dropout` while training, what it gets otherwise")
      .def(py::init<double>(), py::arg("p") = 0.5, "ValueError when p is not in [0, 1)");
  ModuleClass<Sequential>(m, "Sequential", py::is_final(),
                          "Children '0', '1', ..., each called with what the one before gave")
      .def(py::init([](const py::args& children) {
        auto all = std::make_unique<Sequential>();
        for (const py::handle child : children) all->append(child.cast<std::shared_ptr<Module>>());
        return all;
      }))
      .def("append", &Sequential::append, py::arg("module"), "Adds a child at the end")
      .def("__len__", [](const Sequential& s) { return s.children().size(); })
      .def("__getitem__", [](const Sequential& s, size_t i) {
        if (i >= s.children().size()) throw py::index_error();
        return s.children()[i].second;
      });
}

}  // namespace weft::python
