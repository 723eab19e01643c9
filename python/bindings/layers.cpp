// SPDX-License-Identifier: Apache-2.0
#include "weft/layers.h"

#include <variant>

#include "python/bindings/modules.h"
#include "weft/error.h"

namespace weft::python {

template <class S> static std::unique_ptr<S> sequence_of(const py::args& children) {
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
        if (i < -size || i >= size)
          throw py::index_error(
              concat("sequential: index is ", i, ", expected one of ", size, " children"));
        return s.children()[static_cast<size_t>(i < 0 ? i + size : i)].second;
      });
}

/// The dims that a norm is over, of which PyTorch takes one, as a number or as a list of one.
using LastDim = std::variant<int64_t, std::vector<int64_t>>;

static int64_t plain(const LastDim& shape) {
  if (const auto* size = std::get_if<int64_t>(&shape)) return *size;
  const auto& sizes = std::get<std::vector<int64_t>>(shape);
  if (sizes.size() != 1) {
    fail("normalized_shape: number of dims is ", sizes.size(), ", expected 1");
  }
  return sizes[0];
}
template <class T> static T plain(T value) { return value; }

/// Makes a layer; without a device its parameters have no memory yet.
template <class M, class... Args>
static std::unique_ptr<M> layer_of(Args... args, std::optional<Device> device,
                                   std::optional<DType> dtype) {
  auto layer = std::make_unique<M>(plain(args)...);
  if (dtype) layer->to(*dtype);
  if (device) layer->materialize(*device);
  return layer;
}

/// The factories of a layer and of Python classes derived from it, which take `Args`, a device and
/// a dtype.
template <class M, class... Args> static auto init_of() {
  return py::init(&layer_of<M, Args...>, &layer_of<InPython<M>, Args...>);
}

static int64_t size_of_weight(const Module& layer, int dim) {
  return layer.own_parameters()[0].second->shape()[dim];
}

static void bind_affine(py::module_& m) {
  const auto device = py::arg("device") = py::none(), dtype = py::arg("dtype") = py::none();
  bind_module_class<Linear>(m, "Linear",
                            "[..., in] -> [..., out]: x weight^T (+ bias). Parameters: weight "
                            "[out, in] and bias [out], uniform in +-1 / sqrt(in); with `std`, the "
                            "weight is normal and the bias 0")
      .def(init_of<Linear, int64_t, int64_t, bool, std::optional<double>>(), py::arg("in_features"),
           py::arg("out_features"), py::arg("bias") = true, py::arg("std") = py::none(), device,
           dtype)
      .def_property_readonly("in_features", [](const Linear& l) { return size_of_weight(l, 1); })
      .def_property_readonly("out_features", [](const Linear& l) { return size_of_weight(l, 0); })
      .def_property("float8", &Linear::is_float8, &Linear::set_float8,
                    "Whether products are computed by float8_linear");
  bind_module_class<Float8Linear, Linear>(
      m, "Float8Linear",
      "A Linear whose products, and those of its gradients, are computed in 8 bits with dynamic "
      "scales: float8_linear")
      .def(init_of<Float8Linear, int64_t, int64_t, bool, std::optional<double>>(),
           py::arg("in_features"), py::arg("out_features"), py::arg("bias") = true,
           py::arg("std") = py::none(), device, dtype);
  bind_module_class<Embedding>(
      m, "Embedding",
      "ids [...] -> [..., dim]. Parameter: weight [vocabulary, dim], normal with `std`")
      .def(init_of<Embedding, int64_t, int64_t, double>(), py::arg("num_embeddings"),
           py::arg("embedding_dim"), py::arg("std") = 1.0, device, dtype)
      .def_property_readonly("num_embeddings",
                             [](const Embedding& e) { return size_of_weight(e, 0); })
      .def_property_readonly("embedding_dim",
                             [](const Embedding& e) { return size_of_weight(e, 1); });
}

static int convert_layers(Module& model, const py::object& filter) {
  if (filter.is_none()) return convert_to_float8(model);
  const py::function chosen(filter);
  return convert_to_float8(model, [&](const Linear& layer, const std::string& path) {
    return chosen(py::cast(&layer, py::return_value_policy::reference), path).cast<bool>();
  });
}

void bind_layers(py::module_& m) {
  bind_affine(m);
  m.def("convert_to_float8", &convert_layers, py::arg("model"), py::arg("filter") = py::none(),
        "Lets each Linear of the model, or those for which filter(layer, path) is true, compute by "
        "float8_linear; their parameters stay as they are. Gives their number");
  const auto device = py::arg("device") = py::none(), dtype = py::arg("dtype") = py::none();
  bind_module_class<RMSNorm>(m, "RMSNorm",
                             "[..., dim] -> [..., dim]: rms_norm. Parameter: weight, ones")
      .def(init_of<RMSNorm, LastDim, double>(), py::arg("normalized_shape"), py::arg("eps") = 1e-5,
           device, dtype)
      .def_property_readonly("normalized_shape",
                             [](const RMSNorm& n) { return py::make_tuple(size_of_weight(n, 0)); })
      .def_property_readonly("eps", &RMSNorm::eps);
  bind_module_class<LayerNorm>(
      m, "LayerNorm",
      "[..., dim] -> [..., dim]: layer_norm. Parameters: weight, ones; bias, zeros; neither "
      "without elementwise_affine")
      .def(init_of<LayerNorm, LastDim, double, bool, bool>(), py::arg("normalized_shape"),
           py::arg("eps") = 1e-5, py::arg("elementwise_affine") = true, py::arg("bias") = true,
           device, dtype)
      .def_property_readonly("normalized_shape",
                             [](const LayerNorm& n) { return py::make_tuple(n.dim()); })
      .def_property_readonly("eps", &LayerNorm::eps);
  bind_module_class<Dropout>(m, "Dropout", "`dropout` while training, what it gets otherwise")
      .def(py::init<double>(), py::arg("p") = 0.5, "ValueError when p is not in [0, 1)")
      .def_property_readonly("p", &Dropout::probability);
  bind_sequential(m);
}

}  // namespace weft::python
