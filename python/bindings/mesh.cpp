// SPDX-License-Identifier: Apache-2.0
#include <span>
#include <string_view>
#include <vector>

#include "python/bindings/bindings.h"
#include "weft/mesh.h"
#include "weft/sharding.h"

namespace weft::python {

namespace {

/// A Python class for Placements, whose pybind11 caster does not define one.
struct PlacementsObject {
  Placements placements;
};

}  // namespace

py::object object_of(const Placements& placements) {
  return py::cast(PlacementsObject{placements});
}

std::optional<Placement> placement_of(py::handle object) {
  if (const auto* shard = bound_value<Shard>(object)) return Placement(*shard);
  if (bound_value<Replicate>(object)) return Placement(Replicate());
  if (const auto* partial = bound_value<Partial>(object)) return Placement(*partial);
  return std::nullopt;
}

py::object object_of(const Placement& placement) {
  if (placement.is_shard()) {
    const std::span<const int64_t> sizes = placement.sizes();
    return py::cast(Shard{placement.dim(), {sizes.begin(), sizes.end()}, placement.outer()});
  }
  if (placement.is_partial()) return py::cast(Partial{placement.op()});
  return py::cast(Replicate());
}

static std::optional<Placements> by_name(const py::dict& axes) {
  std::vector<NamedPlacement> named;
  for (const auto& [axis, item] : axes) {
    const auto placement = placement_of(item);
    if (!placement || !PyUnicode_Check(axis.ptr())) return std::nullopt;
    named.push_back({axis.cast<std::string>(), *placement});
  }
  return Placements(std::span<const NamedPlacement>(named));
}

std::optional<Placements> placements_of(py::handle object) {
  if (object.is_none()) return Placements();
  if (const auto* placements = bound_value<PlacementsObject>(object)) return placements->placements;
  if (const auto one = placement_of(object)) return Placements{*one};
  if (PyDict_Check(object.ptr())) return by_name(py::reinterpret_borrow<py::dict>(object));
  if (!PyTuple_Check(object.ptr()) && !PyList_Check(object.ptr())) return std::nullopt;
  std::vector<Placement> all;
  for (const py::handle item : py::reinterpret_borrow<py::sequence>(object)) {
    const auto placement = placement_of(item);
    if (!placement) return std::nullopt;
    all.push_back(*placement);
  }
  return Placements(std::span<const Placement>(all));
}

/// The arguments that rebuild a placement.
static py::tuple told_of(const Replicate&) { return py::tuple(0); }
static py::tuple told_of(const Shard& shard) {
  return py::make_tuple(shard.dim, py::tuple(py::cast(shard.sizes)), shard.outer);
}
static py::tuple told_of(const Partial& partial) { return py::make_tuple(name_of(partial.op)); }

/// Placements by name or by position, with the explicit orders of axes.
static py::tuple told_of(const Placements& placements) {
  py::dict named;
  for (const NamedPlacement& one : placements.by_name()) {
    named[py::str(one.axis)] = object_of(one.placement);
  }
  py::list listed, orders;
  for (const Placement& one : placements.by_position()) listed.append(object_of(one));
  for (const CutOrder& order : placements.orders()) {
    orders.append(py::make_tuple(order.dim, order.axes));
  }
  return py::make_tuple(named.empty() ? py::object(listed) : py::object(named), orders);
}

/// Binds the attributes that all three kinds share, as in PyTorch.
template <class Kind>
static py::class_<Kind> bind_kind(py::module_& m, const char* name, const char* doc) {
  return py::class_<Kind>(m, name, doc)
      .def("__eq__",
           [](const Kind& a, const py::object& b) {
             const auto other = placement_of(b);
             return other && *other == Placement(a);
           })
      .def(
          "is_shard",
          [](const Kind& p, std::optional<int> dim) {
            return dim ? Placement(p).is_shard(*dim) : Placement(p).is_shard();
          },
          "dim"_a = py::none(), "True when it is a Shard (of that dim)")
      .def("is_replicate", [](const Kind& p) { return Placement(p).is_replicate(); })
      .def("is_partial", [](const Kind& p) { return Placement(p).is_partial(); })
      .def("__reduce__",
           [m, name](const Kind& p) -> py::tuple {
             return py::make_tuple(m.attr(name), told_of(p));
           })
      .def("__hash__", [](const Kind& p) { return py::hash(py::str(concat(Placement(p)))); });
}

void bind_placements(py::module_& m) {
  bind_kind<Replicate>(m, "Replicate", "Each device along the axis holds the whole")
      .def(py::init<>())
      .def("__repr__", [](const Replicate&) { return "Replicate()"; });
  auto shard_class = bind_kind<Shard>(
      m, "Shard",
      "Each device along the axis holds one contiguous slice of dimension `dim`: ceil(size / "
      "devices) elements, the last devices fewer or none; or slices of explicit `sizes`. With "
      "`outer` above 1, the dim of n elements is seen as [outer, n / outer], and the slices are "
      "those of the second factor: a tensor [4, 6] with Shard(1) is, as [24], one with Shard(0, "
      "outer=4)");
  shard_class
      .def(py::init([](int dim, std::vector<int64_t> sizes, int64_t outer) {
             Shard shard{dim, std::move(sizes), outer};
             Placement{shard};  // checks it
             return shard;
           }),
           "dim"_a = 0, "sizes"_a = std::vector<int64_t>(), "outer"_a = 1,
           "A dim below 0 counts from the end of whatever tensor is laid out; ValueError for one "
           "that no tensor can have. `sizes`: one per device along the axis, equal on all ranks, "
           "adding up to the dim's size; where other axes cut the dim outside of this one, as many "
           "for each of their slices, in order")
      .def_readonly("dim", &Shard::dim)
      .def_readonly("outer", &Shard::outer,
                    "The elements of the dim's factors outside of the one that is cut");
  getter(shard_class, "sizes",
         "Explicit sizes of the slices; empty for slices of ceil(size / devices) elements",
         [](const Shard& s) { return py::tuple(py::cast(s.sizes)); });
  shard_class.def("__repr__", [](const Shard& s) -> std::string {
    std::string text = concat("Shard(", s.dim);
    if (!s.sizes.empty()) {
      text += concat(", sizes=", std::string(py::repr(py::tuple(py::cast(s.sizes)))));
    }
    return text + (s.outer > 1 ? concat(", outer=", s.outer, ")") : ")");
  });
  bind_kind<Partial>(m, "Partial",
                     "Each device along the axis holds a tensor of full size; the value is their "
                     "reduction: sum, avg, max or min")
      .def(py::init([](const std::string& name) {
             const std::vector<const char*> names = {"sum", "avg", "max", "min"};
             return Partial{
                 static_cast<ReduceOp>(number_among("partial", "reduction", name, names))};
           }),
           "reduce_op"_a = "sum")
      .def_property_readonly("reduce_op", [](const Partial& p) { return name_of(p.op); })
      .def("__repr__", [](const Partial& p) { return concat("Partial('", p.op, "')"); });
  py::class_<PlacementsObject> placements_class(
      m, "Placements",
      "One placement an axis of a mesh, by position ([Shard(0), Replicate()]) or by name ({'tp': "
      "Shard(0)}); axes that are not named replicate. Wherever placements are asked for, the list "
      "or dict itself will do");
  placements_class.def(py::init([](const Placements& given) { return PlacementsObject{given}; }),
                       "placements"_a);
  def(placements_class, "cut_in_order(dim, axes)",
      "The same with `dim` cut by the axes in that order, outermost first; names all the root "
      "mesh's axes that cut the dim",
      [](const PlacementsObject& self, int dim, const std::vector<std::string>& axes) {
        return self.placements.cut_in_order(dim, axes);
      });
  placements_class.def("__reduce__", [m](const PlacementsObject& self) -> py::tuple {
    return py::make_tuple(m.attr("_placements"), told_of(self.placements));
  });
  def(m, "_placements(placements, orders)", "", Held(),
      [](Placements placements,
         const std::vector<std::pair<int, std::vector<std::string>>>& orders) {
        for (const auto& [dim, axes] : orders) placements = placements.cut_in_order(dim, axes);
        return placements;
      });
}

/// Parses {"dp": 2, "tp": 4}, or a list of pairs.
static std::vector<MeshAxis> axes_of(const py::object& given) {
  if (!PyDict_Check(given.ptr()) && !py::isinstance<py::sequence>(given)) {
    fail_type("mesh: axes are a ", type_of(given), ", expected a dict such as {'dp': 2, 'tp': 4}");
  }
  const py::list pairs =
      PyDict_Check(given.ptr()) ? py::list(given.attr("items")()) : py::list(given);
  std::vector<MeshAxis> axes;
  for (const py::handle pair : pairs) {
    const bool is_pair = PyTuple_Check(pair.ptr()) && py::len(pair) == 2;
    if (!is_pair || !PyUnicode_Check(pair[py::int_(0)].ptr())) {
      fail_type("mesh: an axis is ", py::repr(pair), ", expected a name and a size");
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
      fail_type("mesh: name of an axis is ", py::repr(name), ", expected a string, as in ",
                text_of(mesh));
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

/// Finds an axis by name or number; None means the only axis.
static int axis_of(const DeviceMesh& mesh, const py::object& axis) {
  if (PyUnicode_Check(axis.ptr())) return mesh.axis(axis.cast<std::string>());
  if (!axis.is_none())
    return normalized_dim("mesh axis", dim_number("mesh axis", axis), mesh.ndim());
  if (mesh.ndim() != 1) fail("mesh: axis is missing, expected one of ", mesh);
  return 0;
}

static void bind_grid(py::class_<DeviceMesh>& bound) {
  bound.def_property_readonly("ndim", &DeviceMesh::ndim);
  getter(bound, "shape", "Sizes of the axes", [](const DeviceMesh& mesh) -> py::tuple {
    return of_axes(mesh, [&](int a) { return mesh.axis_size(a); });
  });
  getter(bound, "mesh_dim_names", "Names of the axes", [](const DeviceMesh& mesh) -> py::tuple {
    return of_axes(mesh, [&](int a) { return mesh.axis_name(a); });
  });
  def(bound, "size(mesh_dim=None)", "Ranks along an axis (name or number), or all",
      [](const DeviceMesh& mesh, const py::object& axis) {
        return axis.is_none() ? mesh.size() : mesh.axis_size(axis_of(mesh, axis));
      });
  def(bound, "get_local_rank(mesh_dim=None)", "This rank's position along an axis (name or number)",
      [](const DeviceMesh& mesh, const py::object& axis) {
        return mesh.coordinate(axis_of(mesh, axis));
      });
  getter(bound, "device_type",
         "The kind of the ranks' devices, \"cpu\" or \"cuda\": where new tensors over it are made",
         [](const DeviceMesh& mesh) {
           const DeviceKind kind = mesh.device_type();
           return kind == DeviceKind::cuda ? "cuda" : concat(Device{kind, 0});
         });
  def(bound, "get_group(mesh_dim=None)", "The ranks along an axis (name or number)",
      [](const DeviceMesh& mesh, const py::object& axis) {
        return view(mesh, py::str(mesh.axis_name(axis_of(mesh, axis)))).communicator();
      });
  bound.def("get_rank", &DeviceMesh::rank, "This rank in the root mesh's communicator");
  def(bound, "get_coordinate()", "This rank's position along each axis",
      [](const DeviceMesh& mesh) {
        return of_axes(mesh, [&](int a) { return mesh.coordinate(a); });
      });
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
           "ranks"_a, "axes"_a, py::kw_only(), "device_type"_a = cpu,
           "Collective over the ranks, whose number must be the product of the axes' sizes: "
           "DeviceMesh(world, {'dp': 2, 'tp': 4}). ValueError for a device_type that this machine "
           "lacks")
      .def("communicator", &DeviceMesh::communicator, Released(),
           "Ranks that differ from this one in this view's axes only")
      .def_property_readonly("root", &DeviceMesh::root, "The mesh that this one is a view of");
  getter(bound, "traffic",
         "(bytes this rank received from others, collectives) over all of the root mesh",
         [](const DeviceMesh& mesh) {
           return std::pair(mesh.traffic().bytes, mesh.traffic().collectives);
         });
  bound.def("__getitem__", &view, "axes"_a)
      .def("__eq__",
           [](const DeviceMesh& a, const py::object& b) {
             return py::isinstance<DeviceMesh>(b) && a == b.cast<const DeviceMesh&>();
           })
      .def("__hash__", [](const DeviceMesh& a) { return std::hash<const void*>()(a.body().get()); })
      .def("__bool__", [](const DeviceMesh& mesh) { return static_cast<bool>(mesh); })
      .def("__repr__", &text_of);
}

}  // namespace weft::python
