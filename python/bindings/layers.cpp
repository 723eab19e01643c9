// SPDX-License-Identifier: Apache-2.0
#include "weft/layers.h"

#include "python/bindings/modules.h"

namespace weft::python {

template <class S>
static std::unique_ptr<S> sequence_of(const py::args& children) {
  auto all = std::make_unique<S>();
  for (const py::handle child : children) {
    all->append(kept_with_object("Sequential", py::reinterpret_borrow<py::object>(child)));
  }
  return all;
}

static void bind_sequential(py::module_& m) {
  bind_module_class<Sequential>(m, "Sequential",
                                "Children '0', '1', ..., each called with what the one before gave")
      .def(py::init(&sequence_of<Sequential>, &sequence_of<InPython<Sequential>>))
      .def(
          "append",
          [](Sequential& self, const ModuleObject& module) {
            self.append(kept_with_object("append", module));
          },
          py::arg("module"), "Adds a child at the end")
      .def("__len__", [](const Sequential& s) { return s.children().size(); })
      .def("__getitem__", [](const Sequential& s, int64_t i) {
        const auto size = static_cast<int64_t>(s.children().size());
        if (i < -size || i >= size) throw py::index_error("Sequential: it has no such child");
        return s.children()[static_cast<size_t>(i < 0 ? i + size : i)].second;
      });
}

void bind_layers(py::module_& m) {
  bind_module_class<Linear>(m, "Linear",
                            "[..., in] -> [..., out]: x weight^T (+ bias). Parameters: weight "
                            "[out, in], normal with `std`; bias [out], zeros")
      .def(py::init<int64_t, int64_t, bool, double>(), py::arg("in_features"),
           py::arg("out_features"), py::arg("bias") = true, py::arg("std") = 0.02);
  bind_module_class<Embedding>(
      m, "Embedding", "ids [...] -> [..., dim]. Parameter: weight [vocabulary, dim], normal")
      .def(py::init<int64_t, int64_t, double>(), py::arg("num_embeddings"),
           py::arg("embedding_dim"), py::arg("std") = 0.02);
  bind_module_class<RMSNorm>(m, "RMSNorm",
                             "[..., dim] -> [..., dim]: rms_norm. Parameter: weight, ones")
      .def(py::init<int64_t, double>(), py::arg("dim"), py::arg("eps") = 1e-5);
  bind_module_class<LayerNorm>(
      m, "LayerNorm", "[..., dim] -> [..., dim]: layer_norm. Parameters: weight, ones; bias, zeros")
      .def(py::init<int64_t, double>(), py::arg("dim"), py::arg("eps") = 1e-5);
  bind_module_class<Dropout>(m, "Dropout", "`dropout` while training, what it gets otherwise")
      .def(py::init<double>(), py::arg("p") = 0.5, "ValueError when p is not in [0, 1)");
  bind_sequential(m);
}

}  // namespace weft::python
