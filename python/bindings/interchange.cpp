// SPDX-License-Identifier: Apache-2.0
#include <dlpack/dlpack.h>

#include <memory>
#include <optional>
#include <vector>

#include "python/bindings/arrays.h"
#include "python/bindings/bindings.h"
#include "python/bindings/released.h"
#include "python/bindings/tensor_methods.h"
#include "weft/error.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"
#include "weft/ops/shapes.h"

namespace weft::python {

/// DLPack 1.0 has it; the header of 0.6 does not.
static constexpr uint8_t kDLBool = 6;

/// Memory that others may look at: of one device, with elements, and without a gradient to lose.
static Tensor shown(const char* what, const Tensor& x) {
  if (x.requires_grad()) {
    fail(what, ": the tensor ", x.shape(),
         " requires a gradient, which would be lost; detach() it");
  }
  if (x.is_sharded()) {
    fail(what, ": the tensor ", x.shape(), " is laid out over ", x.sharding(),
         "; take full_tensor() or local() first");
  }
  if (x.device().kind != DeviceKind::cpu) {
    fail(what, ": a tensor ", x.shape(), " on ", x.device(), " has no memory here");
  }
  return x;
}

py::object item_of(const Tensor& x) {
  if (x.dtype() == DType::i64 || x.dtype() == DType::i32 || x.dtype() == DType::u8) {
    x.item();  // checks that there is one element, and here
    return py::int_(x.to_vector<int64_t>()[0]);
  }
  const double value = x.item();
  if (x.dtype() == DType::boolean) return py::bool_(value != 0);
  return py::float_(value);
}

static py::array numpy_of(const Tensor& x, const char* what) {
  const Block block = shown(what, x).block();
  return array_over(block, py::cast(x));
}

/// Its elements as NumPy has them; bfloat16, which it has not, as float32.
static py::object list_of(const Tensor& x) {
  const Block block = shown("tolist", x.detach()).block();
  const py::array values =
      x.dtype() == DType::bf16 ? widened(block) : array_over(block, py::cast(x));
  return values.attr("tolist")();
}

static py::buffer_info buffer_of(const Tensor& x) {
  const Block block = shown("buffer", x).block();
  std::vector<py::ssize_t> shape, strides;
  for (int d = 0; d < block.shape.ndim(); ++d) {
    shape.push_back(block.shape[d]);
    strides.push_back(block.strides[d] * static_cast<int64_t>(size_of(block.dtype)));
  }
  const auto format = numpy_dtype(block.dtype).attr("char").cast<std::string>();
  return {block.data, static_cast<py::ssize_t>(size_of(block.dtype)),
          format,     block.shape.ndim(),
          shape,      strides};
}

// ---- DLPack

static DLDataType dlpack_dtype(DType dtype) {
  const auto bits = static_cast<uint8_t>(8 * size_of(dtype));
  if (dtype == DType::boolean) return {kDLBool, 8, 1};
  if (dtype == DType::bf16) return {kDLBfloat, bits, 1};
  if (is_floating(dtype)) return {kDLFloat, bits, 1};
  return {static_cast<uint8_t>(dtype == DType::u8 ? kDLUInt : kDLInt), bits, 1};
}

static DType dtype_of_dlpack(const DLDataType& dtype) {
  for (int i = 0; i < kDTypes && dtype.lanes == 1; ++i) {
    const DLDataType ours = dlpack_dtype(static_cast<DType>(i));
    if (ours.code == dtype.code && ours.bits == dtype.bits) return static_cast<DType>(i);
  }
  fail("from_dlpack: no tensor has elements of ", int{dtype.bits}, " bits of DLPack's type ",
       int{dtype.code}, " in ", int{dtype.lanes}, " lanes");
}

/// A tensor that somebody else looks at, until its deleter is called.
struct Exported {
  Tensor tensor;
  std::vector<int64_t> shape, strides;
  DLManagedTensor managed{};
};

static constexpr const char* kCapsule = "dltensor";

/// Whoever takes the tensor out of the capsule renames it and calls the deleter.
static void drop_untaken(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, kCapsule)) return;
  auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, kCapsule));
  managed->deleter(managed);
}

static py::object to_dlpack(const Tensor& x, const std::optional<bool>& copy) {
  auto exported = std::make_unique<Exported>();
  exported->tensor = shown("dlpack", x);
  if (copy.value_or(false)) {
    exported->tensor = empty(x.shape(), {.dtype = x.dtype()});
    copy_(exported->tensor, x);
  }
  const Block block = exported->tensor.block();
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

/// The order in which dims lie in memory, outermost first, when they fill it without gaps; nothing
/// when they do not.
static std::optional<std::vector<int>> order_in_memory(const Shape& shape, const Strides& strides) {
  std::vector<int> order;
  for (int d = 0; d < shape.ndim(); ++d) order.push_back(d);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return std::pair(strides[a], shape[a] > 1) > std::pair(strides[b], shape[b] > 1);
  });
  int64_t expected = 1;
  for (auto d = order.rbegin(); d != order.rend(); ++d) {
    if (shape[*d] != 1 && strides[*d] != expected) return std::nullopt;
    expected *= shape[*d];
  }
  return order;
}

/// Somebody's memory as a tensor: itself when its elements lie without gaps in some order of the
/// dims, a copy otherwise. `owner` keeps the memory. `copy` false
/// makes the copy a ValueError, true makes it in any case.
static Tensor tensor_over(const char* what, const Block& block, std::shared_ptr<void> owner,
                          const std::optional<bool>& copy) {
  const bool is_empty = block.numel() == 0;
  const auto order = order_in_memory(block.shape, block.strides);
  if ((order || is_empty) && !copy.value_or(false)) {
    if (is_empty) return empty(block.shape, {.dtype = block.dtype});
    Shape in_memory;
    std::vector<int> back(order->size());
    for (size_t i = 0; i < order->size(); ++i) {
      in_memory.push_back(block.shape[(*order)[i]]);
      back[static_cast<size_t>((*order)[i])] = static_cast<int>(i);
    }
    const auto bytes = static_cast<size_t>(block.numel()) * size_of(block.dtype);
    const Tensor whole =
        tensor_in(Storage::wrap(block.data, bytes, cpu, [owner] {}), 0, in_memory, block.dtype);
    return std::is_sorted(order->begin(), order->end()) ? whole : permute(whole, back);
  }
  if (!copy.value_or(true)) {
    fail(what, ": elements with gaps between them cannot be had without a copy");
  }
  const Tensor made = empty(block.shape, {.dtype = block.dtype});
  const py::array source =
      array_over({block.data, block.dtype == DType::bf16 ? DType::f16 : block.dtype, cpu,
                  block.shape, block.strides},
                 py::none());
  const py::array target =
      array_over({made.block().data, block.dtype == DType::bf16 ? DType::f16 : block.dtype, cpu,
                  block.shape, made.block().strides},
                 py::none());
  const py::module_ np = py::module_::import("numpy");
  // Bits, whatever they mean.
  np.attr("copyto")(target.attr("view")(concat("u", size_of(block.dtype))),
                    source.attr("view")(concat("u", size_of(block.dtype))));
  return made;
}

static Tensor from_capsule(const py::capsule& capsule, const std::optional<bool>& copy) {
  if (!PyCapsule_IsValid(capsule.ptr(), kCapsule)) {
    fail("from_dlpack: the capsule is none of DLPack's, or was taken already");
  }
  auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), kCapsule));
  const DLTensor& given = managed->dl_tensor;
  if (given.device.device_type != kDLCPU && given.device.device_type != kDLCUDAHost) {
    fail("from_dlpack: the tensor is on DLPack's device type ", int{given.device.device_type},
         "; only memory of the CPU can be taken");
  }
  Block block{static_cast<char*>(given.data) + given.byte_offset,
              dtype_of_dlpack(given.dtype),
              cpu,
              {},
              {}};
  for (int d = 0; d < given.ndim; ++d) block.shape.push_back(given.shape[d]);
  block.strides = dense_strides(block.shape);
  for (int d = 0; given.strides && d < given.ndim; ++d) block.strides[d] = given.strides[d];
  // From here on the memory is ours to give back, whatever happens.
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
    throw py::type_error(
        concat("from_dlpack: a ", Py_TYPE(source.ptr())->tp_name, " has no __dlpack__"));
  }
  return from_capsule(py::capsule(source.attr("__dlpack__")()), copy);
}

/// Elements that kernels can read where they lie.
static bool is_plain(const py::array& array) {
  return array.dtype().attr("isnative").cast<bool>() &&
         array.attr("flags").attr("aligned").cast<bool>();
}

static Tensor from_numpy(const py::array& array, const std::optional<bool>& copy) {
  Block block{const_cast<void*>(array.data()), dtype_of_numpy(array.dtype()), cpu, {}, {}};
  bool has_steps = true;
  for (py::ssize_t d = 0; d < array.ndim(); ++d) {
    block.shape.push_back(array.shape(d));
    has_steps = has_steps && array.strides(d) % array.itemsize() == 0 && array.strides(d) >= 0;
    block.strides.push_back(array.strides(d) / array.itemsize());
  }
  if (!is_plain(array)) {
    if (!copy.value_or(true)) {
      fail("from_numpy: an array ", block.shape,
           " that is not aligned, or not in this machine's byte order, cannot be shared; leave out "
           "copy=False");
    }
    return from_numpy(array.attr("astype")(array.dtype().attr("newbyteorder")("=")), false);
  }
  const bool can_share = has_steps && array.writeable();
  if (!can_share && !copy.value_or(true)) {
    fail("from_numpy: an array ", block.shape,
         array.writeable() ? " with such strides" : " that is not writable",
         " cannot be shared; leave out copy=False");
  }
  if (!has_steps) return from_numpy(array.attr("copy")(), false);
  const std::shared_ptr<PyObject> owner(py::object(array).release().ptr(), drop);
  return tensor_over("from_numpy", block, owner, can_share ? copy : true);
}

void bind_interchange(py::module_& m, py::class_<Tensor>& tensor) {
  tensor.def_buffer(&buffer_of)
      .def(
          "numpy", [](const Tensor& x) { return numpy_of(x, "numpy"); },
          "The elements as a NumPy array that shares memory; ValueError for a sharded tensor, one "
          "that requires a gradient, and bfloat16")
      .def("tolist", &list_of, "The elements as nested lists of Python numbers")
      .def(
          "__array__",
          [](const Tensor& x, const py::object& dtype, const py::object& copy) -> py::object {
            const py::array array = numpy_of(x, "__array__");
            const bool other =
                !dtype.is_none() && !array.dtype().equal(py::dtype::from_args(dtype));
            if (!copy.is_none() && !copy.cast<bool>() && other) {
              fail("__array__: another dtype cannot be had without a copy");
            }
            if (other) return array.attr("astype")(dtype);
            if (!copy.is_none() && copy.cast<bool>()) return array.attr("copy")();
            return array;
          },
          py::arg("dtype") = py::none(), py::arg("copy") = py::none())
      .def(
          "__dlpack__",
          [](const Tensor& x, const py::object&, const py::object&, const py::object& device,
             const std::optional<bool>& copy) {
            if (!device.is_none() && device.cast<std::pair<int, int>>().first != kDLCPU) {
              throw py::buffer_error("dlpack: the tensor is on the CPU, and stays there");
            }
            return to_dlpack(x, copy);
          },
          py::kw_only(), py::arg("stream") = py::none(), py::arg("max_version") = py::none(),
          py::arg("dl_device") = py::none(), py::arg("copy") = py::none())
      .def("__dlpack_device__", [](const Tensor& x) {
        shown("dlpack", x);
        return std::pair(static_cast<int>(kDLCPU), 0);
      });
  m.def("from_dlpack", &from_dlpack, py::arg("x"), py::kw_only(), py::arg("copy") = py::none(),
        "A tensor over the memory of whatever speaks DLPack (torch, NumPy, JAX); copied only where "
        "its elements have gaps. copy=False makes that a ValueError");
  m.def("from_numpy", &from_numpy, py::arg("array"), py::kw_only(), py::arg("copy") = py::none(),
        "A tensor over the memory of a NumPy array; copied where it is read only or has gaps. "
        "copy=False makes that a ValueError");
}

}  // namespace weft::python
