// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "python/bindings/arrays.h"
#include "python/bindings/bindings.h"
#include "python/bindings/instances.h"
#include "weft/error.h"

namespace weft::python {

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
  py::class_<DeviceObject>(m, "Device",
                           "Where memory lives: cpu, meta (shapes and no memory), cuda:0")
      .def(py::init([](const std::string& name) { return DeviceObject{device_named(name)}; }),
           "name"_a, "The device of that name; ValueError for another name")
      .def_property_readonly(
          "type",
          [](const DeviceObject& d) {
            return concat(Device{d.device.kind, 0});
          },
          "'cpu', 'meta' or 'cuda'")
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
  py::class_<DTypeObject>(m, "DType", "The type of a tensor's elements")
      .def_property_readonly(
          "name", [](const DTypeObject& d) { return long_name_of(d.dtype); },
          "'float32', 'bfloat16', 'float16', 'float64', 'int8' to 'int64', 'uint8' to 'uint64', "
          "'float8_e4m3fn', 'float8_e5m2' or 'bool'")
      .def_property_readonly(
          "itemsize", [](const DTypeObject& d) { return size_of(d.dtype); }, "Bytes of an element")
      .def_property_readonly("is_floating_point",
                             [](const DTypeObject& d) { return is_floating(d.dtype); })
      .def("__hash__", [](const DTypeObject& d) { return static_cast<int>(d.dtype); })
      .def("__copy__", [](const py::object& self) { return self; })
      .def("__deepcopy__", [](const py::object& self, const py::object&) { return self; })
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
  m.def(
      "dtype_named", [](DType dtype) { return dtype; }, "name"_a,
      "The dtype of a name, short or long; ValueError lists the names there are");
  m.def(
      "promote", static_cast<DType (*)(DType, DType)>(&promote), "a"_a, "b"_a,
      "The dtype that holds both, as in the Python array API; integer with float gives the float");
  bind_devices(m);
}

}  // namespace weft::python
