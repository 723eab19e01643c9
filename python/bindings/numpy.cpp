// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>
#include <vector>

#include "python/bindings/arrays.h"
#include "python/bindings/bindings.h"
#include "python/bindings/lock.h"
#include "weft/error.h"

namespace weft::python {

static py::array numpy_of(const Tensor& x, const char* what) {
  const MemoryBlock block = lent(what, x).block();
  return array_over(block, py::cast(x));
}

static py::buffer_info buffer_of(const Tensor& x) {
  const MemoryBlock block = lent("buffer", x).block();
  const auto format = numpy_dtype(block.dtype).attr("char").cast<std::string>();
  const auto size = static_cast<py::ssize_t>(size_of(block.dtype));
  const std::vector<py::ssize_t> shape(block.shape.begin(), block.shape.end());
  return {block.data, size, format, block.shape.ndim(), shape, byte_strides(block)};
}

/// Returns true when kernels can read the elements in place.
static bool is_plain(const py::array& array) {
  return array.dtype().attr("isnative").cast<bool>() &&
         array.attr("flags").attr("aligned").cast<bool>();
}

static Tensor from_numpy(const py::array& array, const std::optional<bool>& copy) {
  MemoryBlock block{const_cast<void*>(array.data()), dtype_of_numpy(array.dtype()), cpu, {}, {}};
  bool has_steps = true;
  for (py::ssize_t d = 0; d < array.ndim(); ++d) {
    block.shape.push_back(array.shape(d));
    has_steps = has_steps && array.strides(d) % array.itemsize() == 0 && array.strides(d) >= 0;
    block.strides.push_back(array.strides(d) / array.itemsize());
  }
  if (!is_plain(array)) {
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
  const double value = x.item();
  if (x.dtype() == DType::boolean) return py::bool_(value != 0);
  return py::float_(value);
}

/// bfloat16 and float8, which NumPy lacks, are returned as float32.
py::object list_of(const Tensor& given) {
  const Tensor x = is_float8(given.dtype()) ? given.to(DType::f32) : given;
  const MemoryBlock block = shown("tolist", x.detach()).block();
  const py::array values =
      x.dtype() == DType::bf16 ? widened(block) : array_over(block, py::cast(x));
  return values.attr("tolist")();
}

void bind_numpy(py::module_& m, py::class_<Tensor>& tensor) {
  tensor.def_buffer(&buffer_of)
      .def(
          "numpy", [](const Tensor& x) { return numpy_of(x, "numpy"); },
          "The elements as a NumPy array that shares memory; ValueError for a sharded tensor, one "
          "that requires a gradient, and bfloat16; float8 needs ml_dtypes")
      .def(
          "__array__",
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
          },
          py::arg("dtype") = py::none(), py::arg("copy") = py::none());
  m.def("from_numpy", &from_numpy, py::arg("array"), py::kw_only(), py::arg("copy") = py::none(),
        "A tensor over the memory of a NumPy array; copied where it is read only or has gaps. "
        "copy=False makes that a ValueError");
}

}  // namespace weft::python
