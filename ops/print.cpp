// SPDX-License-Identifier: Apache-2.0
#include <ostream>

#include "mesh/plan.h"
#include "ops/tensor_body.h"
#include "weft/error.h"

namespace weft {

std::string explain(const Tensor& tensor, const Placements& placements) {
  check_tensor("explain", tensor);
  if (!tensor.is_sharded()) {
    fail("explain: the tensor ", tensor.shape(), " is not laid out over a mesh");
  }
  Sharding target(tensor.sharding().mesh(), placements, tensor.ndim());
  Ref<Plan> plan =
      plan_between(layout_of(tensor), layout_of(target, tensor.shape(), tensor.dtype()));
  return to_string(plan_on(tensor.device().kind, *plan));
}

/// More elements than this along a dim are shortened to its first and last three.
static constexpr int64_t kShownElements = 8;

static void print_values(std::ostream& out, const std::vector<double>& values, const Shape& shape,
                         int dim, int64_t first) {
  if (dim == shape.ndim()) {
    out << values[static_cast<size_t>(first)];
    return;
  }
  int64_t stride = 1;
  for (int d = dim + 1; d < shape.ndim(); ++d) stride *= shape[d];
  out << '[';
  for (int64_t i = 0; i < shape[dim]; ++i) {
    if (shape[dim] > kShownElements && i == 3) {
      out << ", ...";
      i = shape[dim] - 3;
    }
    if (i > 0) out << ", ";
    print_values(out, values, shape, dim + 1, first + i * stride);
  }
  out << ']';
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  if (!tensor) return out << "Tensor()";
  out << "Tensor(" << tensor.shape() << ", " << tensor.dtype() << ", " << tensor.device();
  if (tensor.is_sharded()) out << ", " << tensor.sharding();
  out << ')';
  if (tensor.device().kind == DeviceKind::meta || !tensor.storage()->is_bound()) return out;
  out << (tensor.is_sharded() ? " here " : " ");
  print_values(out, tensor.to_vector<double>(), tensor.box().shape, 0, 0);
  return out;
}

}  // namespace weft
