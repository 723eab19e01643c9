// SPDX-License-Identifier: Apache-2.0
#include "ops/engine/tensor_body.h"
#include "src/kernels/copy/copy.h"
#include "weft/error.h"
#include "weft/extend/tape.h"

namespace weft {

static Tensor copied_to(const Tensor& tensor, Device device) {
  Tensor result = new_tensor(layout_of(tensor), device);
  if (device.kind != DeviceKind::meta) copy(result.block(), tensor.block());
  return result;
}

Tensor Tensor::to(Device device) const {
  check_tensor("to", *this);
  if (this->device() == device) return *this;
  if (this->device().kind == DeviceKind::meta) {
    fail("to: the tensor ", shape(), " is on meta, expected one with values to copy to ", device);
  }
  Tensor result = copied_to(detach(), device);
  if (!is_recorded(*this)) return result;
  return record("to", {*this}, {result}, [from = this->device()](const Tensors& gradients) {
    return Tensors{gradients[0].to(from)};
  })[0];
}

}  // namespace weft
