// SPDX-License-Identifier: Apache-2.0
#include <pybind11/complex.h>
#include <pybind11/numpy.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "python/bindings/bindings.h"
#include "weft/extend/views.h"
#include "weft/ops/complex.h"
#include "weft/ops/factories.h"
#include "weft/ops/shapes.h"

namespace weft::python {

/// The names in NumPy, PyTorch and the array API, by DType.
static constexpr std::array<const char*, kDTypes> kLongNames = {
    "float32", "bfloat16",      "float16",     "float64",   "int32",     "int64",
    "uint8",   "bool",          "int8",        "int16",     "uint16",    "uint32",
    "uint64",  "float8_e4m3fn", "float8_e5m2", "complex64", "complex128"};

static const char* long_name_of(DType dtype) { return kLongNames[static_cast<size_t>(dtype)]; }

static std::optional<DType> dtype_of_long_name(std::string_view name) {
  for (size_t i = 0; i < kDTypes; ++i) {
    if (name == kLongNames[i]) return static_cast<DType>(i);
  }
  return std::nullopt;
}

static py::module_ numpy() { return py::module_::import("numpy"); }

/// The package ml_dtypes defines NumPy's dtypes of 8 bits.
static py::dtype ml_dtype(DType dtype) {
  try {
    return py::dtype::from_args(py::module_::import("ml_dtypes").attr(long_name_of(dtype)));
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_ImportError)) throw;
    fail("numpy: dtype is ", dtype,
         ", expected one that NumPy has; install ml_dtypes, or convert by .to(weft.float32)");
  }
}

static py::dtype numpy_dtype(DType dtype) {
  if (dtype == DType::bf16) {
    fail(
        "numpy: dtype is bf16, expected one that NumPy has; convert by .to(weft.float32), or pass "
        "the tensor to torch.from_dlpack");
  }
  if (is_float8(dtype)) return ml_dtype(dtype);
  return py::dtype(long_name_of(dtype));
}

static DType dtype_of_numpy(const py::dtype& dtype) {
  const auto name = py::str(dtype.attr("name")).cast<std::string>();
  if (const auto ours = dtype_of_long_name(name)) return *ours;
  fail("numpy: dtype is ", name, ", expected one of ", listed(kLongNames));
}

static py::array array_of(const MemoryBlock& block, const py::dtype& dtype, py::handle owner) {
  const std::vector<py::ssize_t> shape(block.shape.begin(), block.shape.end());
  std::vector<py::ssize_t> strides(block.strides.begin(), block.strides.end());
  for (py::ssize_t& stride : strides) stride *= static_cast<py::ssize_t>(size_of(block.dtype));
  return py::array(dtype, shape, strides, block.data, owner);
}

/// Returns the block's own memory as an array that keeps `owner` alive.
static py::array array_over(const MemoryBlock& block, py::handle owner) {
  return array_of(block, numpy_dtype(block.dtype), owner);
}

/// Returns a dense float32 copy of a bfloat16 block.
static py::array widened(const MemoryBlock& block) {
  const py::array bits = array_of(block, py::dtype("uint16"), py::none());
  return (bits.attr("astype")("uint32") << py::int_(16)).attr("view")("float32");
}

py::object copied_array(const MemoryBlock& block) {
  if (block.dtype == DType::bf16) return widened(block);
  return array_over(block, py::none()).attr("copy")();
}

/// Returns the bits of the nearest bfloat16, ties to even; a NaN becomes a quiet NaN.
static py::object narrowed(const py::object& values) {
  const py::module_ np = numpy();
  const py::object wide = np.attr("ascontiguousarray")(values, "float32");
  const py::object bits = wide.attr("view")("uint32");
  const py::object odd = (bits >> py::int_(16)) & py::int_(1);
  const py::object rounded = (bits + py::int_(0x7fff) + odd) >> py::int_(16);
  return np.attr("where")(np.attr("isnan")(wide), 0x7fc0, rounded).attr("astype")("uint16");
}

void fill_from_array(const std::string& what, const MemoryBlock& block, const py::object& values) {
  const py::module_ np = numpy();
  const py::object given = np.attr("asarray")(values);
  Shape shape;
  if (!load_shape(given.attr("shape"), shape) || !(shape == block.shape)) {
    fail(what, ": an array is ", shape, ", expected ", block.shape);
  }
  const bool is_bf16 = block.dtype == DType::bf16;
  const py::array to =
      is_bf16 ? array_of(block, py::dtype("uint16"), py::none()) : array_over(block, py::none());
  np.attr("copyto")(to, is_bf16 ? narrowed(given) : given, "casting"_a = "same_kind");
}

Tensor shown(const char* what, const Tensor& x) {
  if (x.requires_grad()) {
    fail(what, ": the tensor ", x.shape(),
         " requires a gradient, expected one that does not; detach() it");
  }
  if (x.is_sharded()) {
    fail(what, ": the tensor ", x.shape(), " is laid out over ", x.sharding(),
         ", expected one of one device; take full_tensor() or local() first");
  }
  if (x.device().kind != DeviceKind::cpu) {
    fail(what, ": the tensor ", x.shape(), " is on ", x.device(), ", expected cpu");
  }
  return x;
}

Tensor lent(const char* what, const Tensor& x) {
  const Tensor seen = shown(what, x);
  if (seen.storage()->is_bindable()) {
    seen.storage()->data();  // Without memory now, the storage's own error comes first.
    fail(what, ": the tensor ", x.shape(),
         " is of a parameter that is gathered for forward, expected memory that stays; clone() it");
  }
  seen.storage()->forget_equality();
  return seen;
}

/// Returns the order of the dims in memory, outermost first, if they fill it without gaps;
/// otherwise nothing.
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

Tensor tensor_over(const char* what, const MemoryBlock& block, std::shared_ptr<void> owner,
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
    fail(what, ": the tensor has strides, expected dense elements for copy=False");
  }
  const Tensor made = empty(block.shape, {.dtype = block.dtype});
  // Copies bits, whatever the dtype.
  const py::dtype bits(concat(is_complex(block.dtype) ? "c" : "u", size_of(block.dtype)));
  numpy().attr("copyto")(array_of(made.block(), bits, py::none()),
                         array_of(block, bits, py::none()));
  return made;
}

static py::array numpy_of(const Tensor& x, const char* what) {
  const MemoryBlock block = lent(what, x).block();
  py::array array = array_over(block, py::cast(x));
  // NumPy's writes would not reach the base of a view that is a copy.
  if (is_copied_view(x)) array.attr("flags").attr("writeable") = false;
  return array;
}

static Tensor from_numpy(const py::array& array, const std::optional<bool>& copy) {
  MemoryBlock block{const_cast<void*>(array.data()), dtype_of_numpy(array.dtype()), cpu, {}, {}};
  bool has_steps = true;
  for (py::ssize_t d = 0; d < array.ndim(); ++d) {
    block.shape.push_back(array.shape(d));
    has_steps = has_steps && array.strides(d) % array.itemsize() == 0 && array.strides(d) >= 0;
    block.strides.push_back(array.strides(d) / array.itemsize());
  }
  const bool is_readable =  // by kernels, in place
      array.dtype().attr("isnative").cast<bool>() &&
      array.attr("flags").attr("aligned").cast<bool>();
  if (!is_readable) {
    if (!copy.value_or(true)) {
      fail("from_numpy: an array ", block.shape,
           " is not aligned, or in another byte order, expected one that can be shared; leave out "
           "copy=False");
    }
    return from_numpy(array.attr("astype")(array.dtype().attr("newbyteorder")("=")), false);
  }
  const bool can_share = has_steps && array.writeable();
  if (!can_share && !copy.value_or(true)) {
    fail("from_numpy: an array ", block.shape,
         array.writeable() ? " has other strides" : " is not writable",
         ", expected one that can be shared; leave out copy=False");
  }
  if (!has_steps) return from_numpy(array.attr("copy")(), false);
  const std::shared_ptr<PyObject> owner(py::object(array).release().ptr(), drop);
  return tensor_over("from_numpy", block, owner, can_share ? copy : true);
}

py::object item_of(const Tensor& x) {
  if (is_integer(x.dtype())) {
    x.item();  // checks that the tensor has one element, on this rank
    if (x.dtype() == DType::u64) return py::int_(x.to_vector<uint64_t>()[0]);
    return py::int_(x.to_vector<int64_t>()[0]);
  }
  if (is_complex(x.dtype())) return py::cast(complex_item(x));
  const double value = x.item();
  if (x.dtype() == DType::boolean) return py::bool_(value != 0);
  return py::float_(value);
}

py::object list_of(const Tensor& given) {
  Tensor x = shown("tolist", given.detach());
  // NumPy lacks bfloat16 and float8.
  if (x.dtype() == DType::bf16 || is_float8(x.dtype())) x = x.to(DType::f32);
  return array_over(x.block(), py::cast(x)).attr("tolist")();
}

void bind_numpy(py::module_& m, py::class_<Tensor>& tensor) {
  tensor.def_buffer([](const Tensor& x) { return numpy_of(x, "buffer").request(); });
  def(tensor, "numpy()",
      "The elements as a NumPy array that shares memory, read-only for a view that is held as a "
      "copy; "
      "ValueError for a sharded tensor, one that "
      "requires a gradient, and bfloat16; float8 needs ml_dtypes",
      [](const Tensor& x) { return numpy_of(x, "numpy"); });
  def(tensor, "__array__(dtype=None, copy=None)", "",
      [](const Tensor& x, const py::object& dtype, const py::object& copy) -> py::object {
        const bool copies = !copy.is_none() && copy.cast<bool>();
        const py::dtype own = numpy_dtype(x.dtype());
        const bool other = !dtype.is_none() && !own.equal(py::dtype::from_args(dtype));
        if (!copy.is_none() && !copies && other) {
          fail("__array__: dtype is another, expected the tensor's for copy=False");
        }
        if (!copies && !other) return numpy_of(x, "__array__");
        const py::array seen = array_over(shown("__array__", x).block(), py::cast(x));
        return other ? seen.attr("astype")(dtype) : seen.attr("copy")();
      });
  def(m, "from_numpy(array, *, copy=None)", &from_numpy,
      "A tensor over the memory of a NumPy array; copied where it is read only or has gaps. "
      "copy=False makes that a ValueError");
}

namespace {

/// A separate class for Python: DType itself is converted by a caster, not bound as a class.
struct DTypeObject {
  DType dtype;
};
struct DeviceObject {
  Device device;
};

}  // namespace

/// Objects that live as long as the process.
static std::array<PyObject*, kDTypes>& dtype_objects() {
  static std::array<PyObject*, kDTypes> objects{};
  return objects;
}

py::handle object_of(DType dtype) { return dtype_objects()[static_cast<size_t>(dtype)]; }

std::optional<DType> dtype_of(py::handle object) {
  for (size_t i = 0; i < kDTypes; ++i) {
    if (object.ptr() == dtype_objects()[i]) return static_cast<DType>(i);
  }
  if (!PyUnicode_Check(object.ptr())) return std::nullopt;
  const auto name = object.cast<std::string>();
  const auto found = dtype_of_long_name(name);
  return found ? found : dtype_named(name);
}

std::optional<Device> device_of(py::handle object) {
  if (object.is_none()) return cpu;
  if (PyUnicode_Check(object.ptr())) return device_named(object.cast<std::string>());
  if (const auto* device = bound_value<DeviceObject>(object)) return device->device;
  return std::nullopt;
}

py::object object_of(Device device) { return py::cast(DeviceObject{device}); }

static void bind_devices(py::module_& m) {
  py::class_<DeviceObject> device_class(
      m, "Device", "The place of memory: cpu, meta (shapes and no memory), cuda:0");
  device_class.def(
      py::init([](const std::string& name) { return DeviceObject{device_named(name)}; }), "name"_a,
      "The device of that name; ValueError for another name");
  getter(device_class, "type", "'cpu', 'meta' or 'cuda'", [](const DeviceObject& d) {
    return concat(Device{d.device.kind, 0});
  });
  device_class
      .def_property_readonly("index", [](const DeviceObject& d) { return int{d.device.index}; })
      .def("__eq__",
           [](const DeviceObject& d, const py::object& other) {
             const auto same = PyUnicode_Check(other.ptr()) || py::isinstance<DeviceObject>(other);
             return same && device_of(other) == d.device;
           })
      .def("__hash__", [](const DeviceObject& d) { return py::hash(py::str(concat(d.device))); })
      .def("__reduce__",
           [m](const DeviceObject& d) -> py::tuple {
             return py::make_tuple(m.attr("Device"), py::make_tuple(concat(d.device)));
           })
      .def("__str__", [](const DeviceObject& d) { return concat(d.device); })
      .def("__repr__", [](const DeviceObject& d) { return concat(d.device); });
  m.def(
      "device_count", [](Device device) { return device_count(device.kind); },
      "device"_a = Device{DeviceKind::cuda, 0},
      "Devices of that kind which this process can use; 0 GPUs where there are none, or no CUDA");
}

void bind_dtypes(py::module_& m) {
  py::class_<DTypeObject> dtype_class(m, "DType", "The type of a tensor's elements");
  copy_as_itself(dtype_class);
  getter(dtype_class, "name",
         "'float32', 'bfloat16', 'float16', 'float64', 'int8' to 'int64', 'uint8' to 'uint64', "
         "'float8_e4m3fn', 'float8_e5m2', 'complex64', 'complex128' or 'bool'",
         [](const DTypeObject& d) { return long_name_of(d.dtype); });
  getter(dtype_class, "itemsize", "Bytes of an element",
         [](const DTypeObject& d) { return size_of(d.dtype); });
  dtype_class
      .def_property_readonly(
          "is_floating_point",
          [](const DTypeObject& d) { return is_floating(d.dtype) && !is_complex(d.dtype); })
      .def_property_readonly("is_complex", [](const DTypeObject& d) { return is_complex(d.dtype); })
      .def("__hash__", [](const DTypeObject& d) { return static_cast<int>(d.dtype); })
      .def("__eq__",
           [](const DTypeObject& d, const py::object& other) {
             return other.ptr() == object_of(d.dtype).ptr();
           })
      .def("__reduce__",
           [m](const DTypeObject& d) -> py::tuple {
             return py::make_tuple(m.attr("dtype_named"), py::make_tuple(long_name_of(d.dtype)));
           })
      .def("__repr__", [](const DTypeObject& d) { return concat("weft.", long_name_of(d.dtype)); });
  for (size_t i = 0; i < kDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    py::object object = py::cast(DTypeObject{dtype});
    m.attr(kLongNames[i]) = object;
    if (dtype != DType::boolean) m.attr(std::string(name_of(dtype)).c_str()) = object;
    dtype_objects()[i] = object.release().ptr();
  }
  def(m, "dtype_named(name)",
      "The dtype of a name, short or long; ValueError lists the names there are", Held(),
      [](DType dtype) { return dtype; });
  def(m, "promote(a, b)",
      "The dtype that holds both, as in the Python array API; integer with float gives the float, "
      "real with complex the complex dtype",
      Held(), static_cast<DType (*)(DType, DType)>(&promote));
  bind_devices(m);
}

}  // namespace weft::python
