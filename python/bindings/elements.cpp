// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/elements.h"

#include "python/bindings/arrays.h"
#include "python/bindings/lent_memory.h"

namespace weft::python {

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

}  // namespace weft::python
