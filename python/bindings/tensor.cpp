// SPDX-License-Identifier: Apache-2.0
#include "weft/tensor.h"

#include "python/bindings/bindings.h"
#include "weft/autograd.h"
#include "weft/extend/pattern.h"
#include "weft/mesh.h"
#include "weft/module.h"
#include "weft/ops/complex.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"
#include "weft/ops/shapes.h"
#include "weft/picture.h"
#include "weft/to_mesh.h"

namespace weft::python {

py::class_<Tensor> declare_tensor(py::module_& m) {
  return py::class_<Tensor>(m, "Tensor", py::buffer_protocol(),
                            "An n-dimensional array, on one device or laid out over a mesh of "
                            "them. A handle: copies share the elements");
}

static py::tuple placements_of_tensor(const Tensor& x) {
  if (!x.is_sharded())
    fail("placements: the tensor ", x.shape(), " has no mesh, expected one over a mesh");
  const auto placements = x.sharding().placements();
  return py::cast(std::vector<Placement>(placements.begin(), placements.end()));
}

/// redistribute(placements) and PyTorch's redistribute(mesh, placements), of which mesh must be the
/// tensor's.
static Tensor redistributed(const Tensor& x, const py::object& first, const py::object& second,
                            bool) {
  const bool has_mesh = py::isinstance<DeviceMesh>(first);
  if (has_mesh && !(x.is_sharded() && x.sharding().mesh() == first.cast<const DeviceMesh&>())) {
    fail("redistribute: the tensor ", x.shape(), " has another mesh or none, expected this mesh");
  }
  const py::object& given = has_mesh || first.is_none() ? second : first;
  const auto placements = given.is_none() ? std::nullopt : placements_of(given);
  if (!placements)
    fail_type("redistribute: placements are missing, expected one an axis of the mesh");
  return released([&] { return x.redistribute(*placements); });
}

static Tensor moved_to_mesh(const Tensor& x, const std::optional<DeviceMesh>& mesh,
                            const Placements& placements, const std::optional<Communicator>& ranks,
                            int64_t round_bytes) {
  const MeshMoveOptions options{ranks.value_or(Communicator()), round_bytes};
  return released([&] { return to_mesh(x, mesh.value_or(DeviceMesh()), placements, options); });
}

/// No communication: all of it follows from the layout.
static std::vector<std::pair<Shape, Shape>> boxes_of(const Tensor& x) {
  const Box own = x.box();
  if (!x.is_sharded()) return {{own.offset, own.shape}};
  const DeviceMesh mesh = x.sharding().mesh();
  std::vector<int> sizes;
  for (int axis = 0; axis < mesh.ndim(); ++axis) sizes.push_back(mesh.axis_size(axis));
  std::vector<std::pair<Shape, Shape>> boxes;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const Box box = box_of(x.sharding().pattern(), sizes, x.shape(), rank);
    boxes.emplace_back(box.offset, box.shape);
  }
  return boxes;
}

static void bind_layout(py::class_<Tensor>& tensor) {
  tensor.def_property_readonly("is_sharded", &Tensor::is_sharded,
                               "True when it is laid out over a mesh");
  getter(tensor, "device_mesh",
         "The root mesh it is laid out over; None for a tensor of one device",
         [](const Tensor& x) -> std::optional<DeviceMesh> {
           if (!x.is_sharded()) return std::nullopt;
           return x.sharding().mesh().on(x.device().kind);
         });
  tensor.def_property_readonly("placements", &placements_of_tensor,
                               "A placement for each axis of the mesh");
  getter(tensor, "box", "(offset, shape): which elements of the whole this rank's part holds",
         [](const Tensor& x) { return std::pair(x.box().offset, x.box().shape); });
  tensor.def("boxes", &boxes_of, "(offset, shape) of each rank's part, by rank of the root mesh")
      .def("local", &Tensor::local, "This rank's part, sharing memory; not recorded for backward");
  def(tensor, "to_local(*, grad_placements=None)",
      "This rank's part, recorded for backward; grad_placements states what the parts of the "
      "gradient are where the tensor is Replicate or Partial (there they must be given)",
      Released(), [](const Tensor& x, const std::optional<Placements>& grad_placements) {
        return grad_placements ? x.to_local(*grad_placements) : x.to_local();
      });
  def(tensor, "redistribute(device_mesh=None, placements=None, *, async_op=False)",
      "The same values in another layout; runs the plan that `explain` prints. "
      "redistribute(placements) or redistribute(device_mesh, placements). It has ended when it "
      "returns, with async_op or without",
      &redistributed);
  def(tensor, "to_mesh(mesh, placements=None, *, ranks=None, round_bytes=0)",
      "The same values over another mesh, as weft.to_mesh gives them", &moved_to_mesh);
  tensor.def("full_tensor", &Tensor::full_tensor, Released(),
             "The whole on each rank, as a tensor of one device");
}

static ChosenPlacements chosen_by(const py::object& given) {
  if (!PyCallable_Check(given.ptr())) {
    const auto placements = placements_of(given);
    if (!placements) {
      fail_type("to_mesh: placements are of type ", type_of(given),
                ", expected one an axis of the mesh, ",
                "or a function of a tensor's name and shape");
    }
    return [all = *placements](const std::string&, const Shape&) { return all; };
  }
  return [kept = Callable(py::reinterpret_borrow<py::function>(given))](const std::string& name,
                                                                        const Shape& shape) {
    const Locked lock;
    const auto placements = placements_of(kept(name, shape));
    if (placements) return *placements;
    fail("to_mesh: placements of tensor ", in_quotes(name), " are another object, expected one an ",
         "axis of the mesh");
  };
}

static void bind_mesh_moves(py::module_& m) {
  py::class_<MeshMove> bound(
      m, "MeshMove",
      "A move of tensors from the ranks of one mesh to those of another: planned once, and run any "
      "number of times. print() shows what each rank receives from which other");
  bound.def(py::init([](const TensorsByName& tensors, const std::optional<DeviceMesh>& mesh,
                        const py::object& placements, const std::optional<Communicator>& ranks,
                        int64_t round_bytes) {
              const ChosenPlacements chosen = chosen_by(placements);
              const MeshMoveOptions options{ranks.value_or(Communicator()), round_bytes};
              const DeviceMesh to = mesh.value_or(DeviceMesh());
              return released([&] { return MeshMove(tensors, to, chosen, options); });
            }),
            "tensors"_a, "mesh"_a, "placements"_a = py::none(), py::kw_only(),
            "ranks"_a = py::none(), "round_bytes"_a = 0,
            "Collective over the ranks of both meshes. `tensors`: a dict, empty on ranks outside "
            "of the mesh that they come from; `mesh`: None on ranks outside of it; `placements`: "
            "of all tensors, or a function of a tensor's name and shape; `ranks`: a group of the "
            "ranks of both meshes, unless one mesh has all ranks of the other; `round_bytes`: the "
            "most bytes that a rank packs at a time where ranks do not share memory");
  def(bound, "run(tensors, into=None)",
      "The tensors over the mesh that they move to, or None for each on ranks outside of it; or "
      "moves them into existing ones. Collective",
      [](const MeshMove& self, const TensorsByName& tensors,
         const std::optional<TensorsByName>& into) -> std::map<std::string, MaybeTensor> {
        const Unlocked release;
        if (into) {
          self.run(tensors, *into);
          return {into->begin(), into->end()};
        }
        const TensorsByName moved = self.run(tensors);
        return {moved.begin(), moved.end()};
      });
  getter(bound, "received_bytes", "Bytes that a run receives on this rank",
         [](const MeshMove& self) { return self.received_bytes(); });
  getter(bound, "kept_bytes", "Bytes that a run copies from this rank's own parts",
         [](const MeshMove& self) { return self.kept_bytes(); });
  getter(bound, "ranks", "The group whose ranks make the move",
         [](const MeshMove& self) { return self.ranks(); });
  bound.def("__str__", &MeshMove::explain);
}

static void bind_gradients(py::class_<Tensor>& tensor) {
  tensor.def_property(
      "requires_grad", &Tensor::requires_grad,
      [](Tensor& x, bool requires_grad) { x.set_requires_grad(requires_grad); },
      "True when backward computes its gradient");
  def(tensor, "requires_grad_(requires_grad=True)",
      "Marks a leaf whose gradient backward computes; ValueError for a result of an op",
      [](Tensor& x, bool requires_grad) { return x.set_requires_grad(requires_grad); });
  tensor.def_property_readonly("is_leaf", &Tensor::is_leaf)
      .def_property(
          "grad", [](const Tensor& x) { return MaybeTensor(x.grad()); },
          [](const Tensor& x, const MaybeTensor& grad) { x.set_grad(grad); },
          "The gradient of a leaf after backward; None before")
      .def("detach", &Tensor::detach, "The same elements, not recorded");
}

static void bind_shape_methods(py::class_<Tensor>& tensor) {
  const auto reshape_to = [](const Tensor& x, const py::args& sizes) {
    const Shape shape = sizes_one_by_one("reshape", sizes);
    return released([&] { return reshaped(x, shape); });
  };
  tensor.def("reshape", reshape_to, "The same elements in row-major order; one size may be -1")
      .def("view", reshape_to, "Does what reshape does: a view where memory allows");
  def(tensor, "permute(*dims)", "Dim i of the result is dim dims[i]; a view",
      [](const Tensor& x, const py::args& dims) {
        const std::vector<int> given = dims_one_by_one("permute", dims);
        return released([&] { return permute(x, given); });
      });
  def(tensor, "flip(*dims, axis=None)", "The elements of the dims given, or of all, reversed",
      [](const Tensor& x, const py::args& dims, const std::optional<DimList>& axis) {
        const std::vector<int> given = dims.empty() ? dims_of(axis) : dims_one_by_one("flip", dims);
        return released([&] { return flip(x, given); });
      });
  tensor.def("t", &Tensor::t, Released(), "Dims reversed, for a matrix; a view")
      .def_property_readonly("T", py::cpp_function(&Tensor::t, Released()), "t()")
      .def_property_readonly(
          "mT", py::cpp_function([](const Tensor& x) { return x.transpose(-2, -1); }, Released()),
          "The last two dims exchanged; a view");
  def(tensor, "expand(*sizes)", "Dims of size 1 repeated to the shape; -1 keeps a size; no copy",
      [](const Tensor& x, const py::args& sizes) {
        Shape shape = sizes_one_by_one("expand", sizes);
        // -1 keeps the size of a dim.
        for (int d = 0; d < shape.ndim(); ++d) {
          const int own = d - shape.ndim() + x.ndim();
          if (shape[d] == -1 && own >= 0) shape[d] = x.size(own);
        }
        return released([&] { return expand(x, shape); });
      });
  tensor.def("__getitem__", &indexed, "index"_a)
      .def("__setitem__", &set_indexed, "index"_a, "value"_a);
}

static int64_t rows_of(const char* what, const Tensor& x) {
  if (x.ndim() > 0) return x.shape()[0];
  fail_type(what, ": the tensor has no dims, expected at least 1");
}

static void bind_elements(py::class_<Tensor>& tensor) {
  tensor.def("item", &item_of, "The one element, whole on this rank, as a Python number")
      .def("tolist", &list_of, "The elements as nested lists of Python numbers")
      .def("__format__",
           [](const Tensor& x, const std::string& how) -> std::string {
             if (how.empty()) return concat(x);
             return py::str(item_of(x).attr("__format__")(how));
           })
      .def("__float__", [](const Tensor& x) { return x.item(); })
      .def("__complex__",
           [](const Tensor& x) { return py::object(item_of(x.to(complex_dtype(x.dtype())))); })
      .def("__int__", [](const Tensor& x) { return py::int_(item_of(x)); })
      .def("__bool__",
           [](const Tensor& x) {
             if (x.numel() == 1 && is_complex(x.dtype())) return complex_item(x) != 0.0;
             if (x.numel() == 1) return x.item() != 0;
             fail("bool: number of elements is ", x.numel(), ", expected 1; any() and all() ask ",
                  "of all elements");
           })
      .def("__iter__",
           [](const Tensor& x) {
             py::list rows;
             for (int64_t i = 0; i < rows_of("iter", x); ++i) rows.append(indexed(x, py::int_(i)));
             return py::iter(rows);
           })
      .def("__len__", [](const Tensor& x) { return rows_of("len", x); })
      .def("__index__",
           [](const Tensor& x) {
             if (is_floating(x.dtype())) {
               fail_type("index: dtype of the tensor is ", x.dtype(), ", expected an integer one");
             }
             return py::int_(item_of(x));
           })
      .def("__hash__", [](const Tensor& x) { return std::hash<const void*>()(x.body().get()); });
}

/// The function as one that binds to objects of the class whose attribute it is.
static py::object as_method(const py::object& function) {
  return py::reinterpret_steal<py::object>(PyInstanceMethod_New(function.ptr()));
}

/// Functions of the module whose first operand is a tensor, as methods of it.
static void bind_functions_as_methods(py::module_& m, py::class_<Tensor>& tensor) {
  const py::str names(
      "abs add addcdiv addcmul addmm all allclose amax amin angle any argmax argmin astype baddbmm "
      "ceil "
      "chunk clone conj contiguous copy_ cos cummax cummin diag divide dot erf exp exp2 explain "
      "fill_ "
      "flatten floor fmod frac gather index_add index_copy index_fill index_reduce index_select "
      "isclose isfinite isinf isnan kthvalue lerp log log_softmax logcumsumexp logit logsumexp "
      "masked_fill masked_select matmul max mean median min multiply mv nan_to_num nanmean "
      "nanmedian nansum narrow norm normal_ pow prod relu round rsqrt scatter_add scatter_reduce "
      "select sigmoid silu sin softmax split sqrt square squeeze subtract sum tanh tensor_split "
      "topk transpose tril triu unbind unflatten unfold uniform_ unsqueeze");
  m.attr("_METHODS") = py::tuple(names.attr("split")());
  for (const py::handle name : m.attr("_METHODS")) tensor.attr(name) = as_method(m.attr(name));
}

void bind_tensor(py::module_& m, py::class_<Tensor>& tensor) {
  tensor.def(py::init([](const Parameter& p) { return p.tensor(); }), "parameter"_a,
             "The tensor a parameter computes with. Others are made by weft.tensor, weft.asarray, "
             "weft.zeros, ...");
  py::implicitly_convertible<Parameter, Tensor>();
  tensor.def_property_readonly("shape", &Tensor::shape, "Shape of the whole tensor")
      .def_property_readonly("ndim", &Tensor::ndim, "Dims of the whole tensor")
      .def("dim", &Tensor::ndim)
      .def_property_readonly("dtype", &Tensor::dtype)
      .def_property_readonly("device", &Tensor::device)
      .def_property_readonly("real", &real, "The real parts, as a new tensor")
      .def_property_readonly("imag", &imag, "The imaginary parts, as a new tensor")
      .def_property_readonly("size", &Tensor::numel, "Elements of the whole tensor")
      .def("numel", &Tensor::numel, "Elements of the whole tensor")
      .def(
          "__repr__", [](const Tensor& x) { return concat(x); }, Released());
  bind_layout(tensor);
  bind_mesh_moves(m);
  bind_gradients(tensor);
  bind_derivatives(m, tensor);
  bind_shape_methods(tensor);
  bind_elements(tensor);
  def(m, "from_local(local, mesh, placements, *, shape=None)",
      "A sharded tensor whose parts are `local`. The ranks exchange their sizes unless the whole's "
      "`shape` is given; they must be those of a cut of their sum",
      [](const Tensor& local, const DeviceMesh& mesh, const Placements& placements,
         const std::optional<Shape>& shape) {
        return shape ? from_local(local, mesh, placements, *shape)
                     : from_local(local, mesh, placements);
      });
  def(m, "distribute(whole, mesh, placements=None)", &distribute,
      "Slices locally what each rank already holds whole");
  def(m, "scatter(whole, mesh, placements, root=0)",
      taking<MaybeTensor, DeviceMesh, Placements, int>(&scatter),
      "Sends root's `whole` to the ranks of the mesh; other ranks give None, or any. Not recorded: "
      "a leaf on all ranks where root's requires a gradient");
  py::class_<Picture>(m, "Picture",
                      "The part that each rank holds: str() is the text, `svg` the picture, which "
                      "notebooks show; save(path) writes it")
      .def("__repr__", [](const Picture& self) { return self.text; })
      .def_readonly("svg", &Picture::svg, "The text of an SVG file")
      .def("_repr_svg_", [](const Picture& self) { return self.svg; });
  def(m, "visualize(tensor, placements=None)",
      "The part of a tensor on each rank, as a Picture. With `placements`, also the plan of "
      "tensor.redistribute(placements) and which rank holds which part after it. No communication",
      [](const Tensor& x, const std::optional<Placements>& p) {
        return p ? visualize(x, *p) : visualize(x);
      });
  def(m, "explain(tensor, placements)",
      "The plan of `redistribute`: steps, bytes, predicted time, peak memory",
      [](const Tensor& x, const Placements& p) { return explain(x, p); });
  bind_functions_as_methods(m, tensor);
  bind_operators(tensor);
  // NumPy leaves operators with tensors to the tensor.
  tensor.attr("__array_ufunc__") = py::none();
}

}  // namespace weft::python
