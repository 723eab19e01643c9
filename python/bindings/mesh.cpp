// SPDX-License-Identifier: Apache-2.0
#include "weft/mesh.h"

#include <string_view>
#include <vector>

#include "python/bindings/bindings.h"
#include "python/bindings/lock.h"
#include "weft/error.h"
#include "weft/sharding.h"

namespace weft::python {

/// Parses {"dp": 2, "tp": 4}, or a list of pairs.
static std::vector<MeshAxis> axes_of(const py::object& given) {
  if (!PyDict_Check(given.ptr()) && !py::isinstance<py::sequence>(given)) {
    throw py::type_error(concat("mesh: axes are a ", Py_TYPE(given.ptr())->tp_name,
                                ", expected a dict such as {'dp': 2, 'tp': 4}"));
  }
  const py::list pairs =
      PyDict_Check(given.ptr()) ? py::list(given.attr("items")()) : py::list(given);
  std::vector<MeshAxis> axes;
  for (const py::handle pair : pairs) {
    const bool is_pair = PyTuple_Check(pair.ptr()) && py::len(pair) == 2;
    if (!is_pair || !PyUnicode_Check(pair[py::int_(0)].ptr())) {
      throw py::type_error(concat("mesh: an axis is ", py::repr(pair).cast<std::string>(),
                                  ", expected a name and a size"));
    }
    axes.push_back({pair[py::int_(0)].cast<std::string>(), dim_number("mesh", pair[py::int_(1)])});
  }
  return axes;
}

static std::string text_of(const DeviceMesh& mesh) { return mesh ? concat(mesh) : "mesh()"; }

static DeviceMesh view(const DeviceMesh& mesh, const py::object& names) {
  const bool is_one = !PyTuple_Check(names.ptr()) && !PyList_Check(names.ptr());
  std::vector<std::string> given;
  for (const py::handle name : is_one ? py::sequence(py::make_tuple(names)) : py::sequence(names)) {
    if (!PyUnicode_Check(name.ptr())) {
      throw py::type_error(concat("mesh: name of an axis is ", py::repr(name).cast<std::string>(),
                                  ", expected a string, as in ", text_of(mesh)));
    }
    given.push_back(name.cast<std::string>());
  }
  const std::vector<std::string_view> views(given.begin(), given.end());
  const Unlocked release;  // joined axes agree on a communicator
  return mesh.view(views);
}

/// of(axis) of each axis.
template <class Of> static py::list of_axes(const DeviceMesh& mesh, const Of& of) {
  py::list all;
  for (int a = 0; a < mesh.ndim(); ++a) all.append(of(a));
  return all;
}

static py::tuple shape_of(const DeviceMesh& mesh) {
  return of_axes(mesh, [&](int a) { return mesh.axis_size(a); });
}

static py::tuple names_of(const DeviceMesh& mesh) {
  return of_axes(mesh, [&](int a) { return mesh.axis_name(a); });
}

/// Finds an axis by name or number; None means the only axis.
static int axis_of(const DeviceMesh& mesh, const py::object& axis) {
  if (PyUnicode_Check(axis.ptr())) return mesh.axis(axis.cast<std::string>());
  if (!axis.is_none())
    return normalized_dim("mesh axis", dim_number("mesh axis", axis), mesh.ndim());
  if (mesh.ndim() != 1) fail("mesh: axis is missing, expected one of ", mesh);
  return 0;
}

static std::string type_name(DeviceKind kind) {
  return kind == DeviceKind::cuda ? "cuda" : concat(Device{kind, 0});
}

/// Binds the mesh's shape and this rank's coordinates.
static void bind_grid(py::class_<DeviceMesh>& bound) {
  bound.def_property_readonly("ndim", &DeviceMesh::ndim)
      .def_property_readonly("shape", &shape_of, "Sizes of the axes")
      .def_property_readonly("mesh_dim_names", &names_of, "Names of the axes")
      .def(
          "size",
          [](const DeviceMesh& mesh, const py::object& axis) {
            return axis.is_none() ? mesh.size() : mesh.axis_size(axis_of(mesh, axis));
          },
          py::arg("mesh_dim") = py::none(), "Ranks along an axis (name or number), or all")
      .def(
          "get_local_rank",
          [](const DeviceMesh& mesh, const py::object& axis) {
            return mesh.coordinate(axis_of(mesh, axis));
          },
          py::arg("mesh_dim") = py::none(), "This rank's position along an axis (name or number)")
      .def_property_readonly(
          "device_type", [](const DeviceMesh& mesh) { return type_name(mesh.device_type()); },
          "The kind of the ranks' devices, \"cpu\" or \"cuda\": where new tensors over it are made")
      .def(
          "get_group",
          [](const DeviceMesh& mesh, const py::object& axis) {
            return view(mesh, py::str(mesh.axis_name(axis_of(mesh, axis)))).communicator();
          },
          py::arg("mesh_dim") = py::none(), "The ranks along an axis (name or number)")
      .def("get_rank", &DeviceMesh::rank, "This rank in the root mesh's communicator")
      .def(
          "get_coordinate",
          [](const DeviceMesh& mesh) {
            return of_axes(mesh, [&](int a) { return mesh.coordinate(a); });
          },
          "This rank's position along each axis");
}

void bind_mesh(py::module_& m) {
  py::class_<DeviceMesh> bound(m, "DeviceMesh",
                               "Ranks in a grid with named axes; the last axis varies fastest. "
                               "mesh['dp'] and mesh['dp', 'tp'] are views of it");
  refuse_to_pickle(bound,
                   "a DeviceMesh is not pickled: it is of the ranks that made it; make it again, "
                   "and save tensors by state_dict and CheckpointSaver");
  copy_as_itself(bound);
  bind_grid(bound);
  bound
      .def(py::init([](const Communicator& ranks, const py::object& axes, Device device_type) {
             const std::vector<MeshAxis> list = axes_of(axes);
             const Unlocked release;
             return DeviceMesh(ranks, list, device_type.kind);
           }),
           py::arg("ranks"), py::arg("axes"), py::kw_only(), py::arg("device_type") = cpu,
           "Collective over the ranks, whose number must be the product of the axes' sizes: "
           "DeviceMesh(world, {'dp': 2, 'tp': 4}). ValueError for a device_type that this machine "
           "lacks")
      .def("communicator", &DeviceMesh::communicator, Released(),
           "Ranks that differ from this one in this view's axes only")
      .def_property_readonly("root", &DeviceMesh::root, "The mesh that this one is a view of")
      .def_property_readonly(
          "traffic",
          [](const DeviceMesh& mesh) {
            return std::pair(mesh.traffic().bytes, mesh.traffic().collectives);
          },
          "(bytes this rank received from others, collectives) over all of the root mesh")
      .def("__getitem__", &view, py::arg("axes"))
      .def("__eq__",
           [](const DeviceMesh& a, const py::object& b) {
             return py::isinstance<DeviceMesh>(b) && a == b.cast<const DeviceMesh&>();
           })
      .def("__hash__", [](const DeviceMesh& a) { return std::hash<const void*>()(a.body().get()); })
      .def("__bool__", [](const DeviceMesh& mesh) { return static_cast<bool>(mesh); })
      .def("__repr__", &text_of);
}

}  // namespace weft::python
