// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/lent_memory.h"

#include <algorithm>
#include <vector>

#include "python/bindings/arrays.h"
#include "weft/error.h"
#include "weft/ops/factories.h"
#include "weft/ops/shapes.h"

namespace weft::python {

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
  const auto bits_of = [&](void* data, const Strides& strides) {
    const DType dtype = block.dtype == DType::bf16 ? DType::f16 : block.dtype;
    const py::array all = array_over({data, dtype, cpu, block.shape, strides}, py::none());
    return all.attr("view")(concat("u", size_of(dtype)));
  };
  py::module_::import("numpy").attr("copyto")(bits_of(made.block().data, made.block().strides),
                                              bits_of(block.data, block.strides));
  return made;
}

}  // namespace weft::python
