// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "python/bindings/arrays.h"
#include "python/bindings/bindings.h"
#include "python/bindings/lock.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/ops/factories.h"
#include "weft/sharding.h"

namespace weft::python {

static void check_is_leaf(const char* what, const Tensor& x) {
  if (x.is_leaf() || !x.requires_grad()) return;
  fail(what, ": the tensor ", x.shape(),
       " is the result of an op, expected a leaf or no gradient; detach() it");
}

static size_t bytes_of(const Shape& shape, DType dtype) {
  return static_cast<size_t>(shape.product()) * size_of(dtype);
}

/// The dense values of a tensor on one device, as stored by `pickle`.
static py::bytes dense_bytes(const Tensor& x) {
  const Tensor dense = empty(x.shape(), {.dtype = x.dtype()});
  copy_(dense, shown("pickle", x.detach()));
  return {static_cast<const char*>(dense.block().data), bytes_of(x.shape(), x.dtype())};
}

static Tensor tensor_of_bytes(const py::bytes& bytes, DType dtype, const Shape& shape,
                              bool requires_grad) {
  const std::string_view given = bytes;
  Tensor made = empty(shape, {.dtype = dtype});
  if (given.size() != bytes_of(shape, dtype)) {
    fail("pickle: number of bytes is ", given.size(), ", expected ", bytes_of(shape, dtype),
         ", those of a tensor ", shape, " of ", dtype);
  }
  if (!given.empty()) std::memcpy(made.block().data, given.data(), given.size());
  return requires_grad ? made.set_requires_grad() : made;
}

static py::tuple reduced(const py::object& function, const Tensor& x) {
  if (x.is_sharded()) {
    fail("pickle: the tensor ", x.shape(), " is laid out over ", x.sharding(),
         ", expected one of one device; save it by CheckpointSaver, as part of a state_dict, or "
         "pickle "
         "its full_tensor()");
  }
  check_is_leaf("pickle", x);
  return py::make_tuple(function,
                        py::make_tuple(dense_bytes(x), x.dtype(), x.shape(), x.requires_grad()));
}

Tensor values_copied(const Tensor& x) {
  const NoGrad no_grad;
  const Tensor made =
      empty(x.shape(), {.dtype = x.dtype(), .device = x.device(), .sharding = x.sharding()});
  if (x.device().kind != DeviceKind::meta) copy_(made.local(), x.detach().local());
  return made;
}

static Tensor deep_copied(const Tensor& x) {
  check_is_leaf("deepcopy", x);
  Tensor made = values_copied(x);
  if (!x.requires_grad()) return made;
  made.set_requires_grad();
  if (x.grad()) made.set_grad(values_copied(x.grad()));
  return made;
}

void bind_copies(py::module_& m, py::class_<Tensor>& tensor) {
  m.def("_tensor_of_bytes", &tensor_of_bytes, py::arg("values"), py::arg("dtype"), py::arg("shape"),
        py::arg("requires_grad"));
  tensor
      .def("__reduce_ex__",
           [function = m.attr("_tensor_of_bytes")](const Tensor& x, const py::object&) {
             return reduced(function, x);
           })
      .def("__copy__", [](const Tensor& x) { return x; })
      .def("__deepcopy__", [](const Tensor& x, const py::object&) {
        return released([&] { return deep_copied(x); });
      });
}

}  // namespace weft::python
