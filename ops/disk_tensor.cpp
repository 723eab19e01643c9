// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/disk_tensor.h"

#include "ops/engine/tensor_body.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/ops/factories.h"

namespace weft {

DiskPlace disk_place(const Tensor& tensor) {
  const Ref<Storage>& storage = tensor.storage();
  if (storage->is_bound() || tensor.device().kind == DeviceKind::meta) return {};
  const auto element = static_cast<int64_t>(size_of(tensor.dtype()));
  return {DiskMemory::behind(*storage), tensor.body()->offset * element,
          tensor.box().shape.product() * element};
}

bool rests_on_disk(const Tensor& tensor) { return disk_place(tensor).memory != nullptr; }

Tensor memory_like(const Tensor& on_disk) {
  return empty(on_disk.shape(), {.dtype = on_disk.dtype(), .sharding = on_disk.sharding()});
}

Tensor in_memory(const Tensor& tensor) {
  const DiskPlace place = disk_place(tensor);
  if (!place.memory) return tensor;
  Tensor copy = memory_like(tensor);
  place.memory->read(place.offset, place.bytes, copy.block().data).wait();
  return copy;
}

void write_to_disk(const Tensor& on_disk, const Tensor& values) {
  const DiskPlace place = disk_place(on_disk);
  if (!place.memory) fail("offload: the tensor ", on_disk.shape(), " is in memory, expected disk");
  const NoGrad no_grad;
  Tensor dense = values;
  if (!values.block().is_dense() || values.device().kind != DeviceKind::cpu) {
    dense = memory_like(on_disk);
    copy_(dense.local(), values.local());
  }
  place.memory->write(place.offset, place.bytes, dense.block().data).wait();
  on_disk.storage()->mark_changed();
}

}  // namespace weft
