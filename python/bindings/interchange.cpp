// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include <dlpack/dlpack.h>

#include "python/bindings/bindings.h"
#include "weft/context.h"
#include "weft/extend/views.h"
#include "weft/ops/factories.h"
#include "weft/sharding.h"

namespace weft::python {

/// Part of DLPack 1.0, but missing in the header of 0.6.
static constexpr uint8_t kDLBool = 6;
/// Part of DLPack 1.1.
static constexpr uint8_t kDLFloat8E4M3 = 10, kDLFloat8E5M2 = 12;

static DLDataType dlpack_dtype(DType dtype) {
  const auto bits = static_cast<uint8_t>(8 * size_of(dtype));
  if (dtype == DType::boolean) return {kDLBool, 8, 1};
  if (is_complex(dtype)) return {kDLComplex, bits, 1};
  if (dtype == DType::bf16) return {kDLBfloat, bits, 1};
  if (dtype == DType::f8_e4m3) return {kDLFloat8E4M3, bits, 1};
  if (dtype == DType::f8_e5m2) return {kDLFloat8E5M2, bits, 1};
  if (is_floating(dtype)) return {kDLFloat, bits, 1};
  return {static_cast<uint8_t>(is_unsigned(dtype) ? kDLUInt : kDLInt), bits, 1};
}

static DType dtype_of_dlpack(const DLDataType& dtype) {
  for (int i = 0; i < kDTypes && dtype.lanes == 1; ++i) {
    const DLDataType ours = dlpack_dtype(static_cast<DType>(i));
    if (ours.code == dtype.code && ours.bits == dtype.bits) return static_cast<DType>(i);
  }
  fail("from_dlpack: elements are ", int{dtype.bits}, " bits of DLPack's type ", int{dtype.code},
       " in ", int{dtype.lanes}, " lanes, expected a dtype of weft");
}

/// A tensor whose memory another library uses, until its deleter is called.
struct Exported {
  Tensor tensor;
  std::vector<int64_t> shape, strides;
  DLManagedTensor managed{};
};

static constexpr const char* kCapsule = "dltensor";

/// A consumer that takes the tensor out of the capsule renames the capsule and calls the deleter.
static void drop_untaken(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, kCapsule)) return;
  auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, kCapsule));
  managed->deleter(managed);
}

static py::object to_dlpack(const Tensor& x, const std::optional<bool>& copy) {
  auto exported = std::make_unique<Exported>();
  // A consumer might write to the memory, and a view that is a copy would not pass that on.
  const bool is_copy = is_copied_view(x);
  if (is_copy && !copy.value_or(true)) {
    fail("dlpack: the tensor ", x.shape(), " is a view that is held as a copy, expected one that ",
         "holds its elements for copy=False; clone() it");
  }
  if (copy.value_or(is_copy)) {
    exported->tensor = empty(x.shape(), {.dtype = x.dtype()});
    copy_(exported->tensor, shown("dlpack", x));
  } else {
    exported->tensor = lent("dlpack", x);
  }
  const MemoryBlock block = exported->tensor.block();
  exported->shape.assign(block.shape.begin(), block.shape.end());
  exported->strides.assign(block.strides.begin(), block.strides.end());
  DLManagedTensor& managed = exported->managed;
  managed.dl_tensor = {.data = block.data,
                       .device = {kDLCPU, 0},
                       .ndim = block.shape.ndim(),
                       .dtype = dlpack_dtype(block.dtype),
                       .shape = exported->shape.data(),
                       .strides = exported->strides.data(),
                       .byte_offset = 0};
  managed.manager_ctx = exported.get();
  managed.deleter = [](DLManagedTensor* self) { delete static_cast<Exported*>(self->manager_ctx); };
  PyObject* capsule = PyCapsule_New(&managed, kCapsule, drop_untaken);
  if (!capsule) throw py::error_already_set();
  static_cast<void>(exported.release());
  return py::reinterpret_steal<py::object>(capsule);
}

static Tensor from_capsule(const py::capsule& capsule, const std::optional<bool>& copy) {
  if (!PyCapsule_IsValid(capsule.ptr(), kCapsule)) {
    fail(
        "from_dlpack: the capsule is of another kind or used already, expected a new one of "
        "DLPack");
  }
  auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), kCapsule));
  const DLTensor& given = managed->dl_tensor;
  if (given.device.device_type != kDLCPU && given.device.device_type != kDLCUDAHost) {
    fail("from_dlpack: device type is ", int{given.device.device_type},
         ", expected memory of the CPU");
  }
  const DType dtype = dtype_of_dlpack(given.dtype);
  const Shape shape(std::span<const int64_t>(given.shape, static_cast<size_t>(given.ndim)));
  MemoryBlock block = dense_block(static_cast<char*>(given.data) + given.byte_offset, dtype, shape);
  for (int d = 0; given.strides && d < given.ndim; ++d) block.strides[d] = given.strides[d];
  // From here on this function must release the memory, also after an error.
  if (PyCapsule_SetName(capsule.ptr(), "used_dltensor") != 0) throw py::error_already_set();
  const std::shared_ptr<DLManagedTensor> owner(managed, [](DLManagedTensor* taken) {
    if (taken->deleter) taken->deleter(taken);
  });
  return tensor_over("from_dlpack", block, owner, copy);
}

static Tensor from_dlpack(const py::object& source, const std::optional<bool>& copy) {
  if (PyCapsule_CheckExact(source.ptr())) {
    return from_capsule(py::reinterpret_borrow<py::capsule>(source), copy);
  }
  if (!py::hasattr(source, "__dlpack__")) {
    fail_type("from_dlpack: source is a ", type_of(source), ", expected an object with __dlpack__");
  }
  return from_capsule(py::capsule(source.attr("__dlpack__")()), copy);
}

void bind_dlpack(py::module_& m, py::class_<Tensor>& tensor) {
  def(tensor, "__dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None)", "",
      [](const Tensor& x, const py::object&, const py::object&, const py::object& device,
         const std::optional<bool>& copy) {
        if (!device.is_none() && device.cast<std::pair<int, int>>().first != kDLCPU) {
          throw py::buffer_error("dlpack: the tensor is on the CPU, and stays there");
        }
        return to_dlpack(x, copy);
      });
  tensor.def("__dlpack_device__", [](const Tensor& x) {
    shown("dlpack", x);
    return std::pair(static_cast<int>(kDLCPU), 0);
  });
  def(m, "from_dlpack(x, *, device=None, copy=None)",
      "A tensor over the memory of whatever speaks DLPack (torch, NumPy, JAX), copied if its "
      "elements have gaps. copy=True always copies; copy=False raises ValueError where a copy is "
      "needed",
      [](const py::object& x, const std::optional<Device>& device,
         const std::optional<bool>& copy) {
        return on_given_device("from_dlpack", from_dlpack(x, copy), device);
      });
}

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
         "pickle its full_tensor()");
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
  def(m, "_tensor_of_bytes(values, dtype, shape, requires_grad)", &tensor_of_bytes);
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
