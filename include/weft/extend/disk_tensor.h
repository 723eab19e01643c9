// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "weft/export.h"
#include "weft/extend/disk_memory.h"
#include "weft/tensor.h"

namespace weft {

/// The place on disk of the elements of this rank.
struct DiskPlace {
  /// Null for a tensor in memory.
  std::shared_ptr<DiskMemory> memory;
  /// Byte of the first element.
  int64_t offset = 0;
  int64_t bytes = 0;
};
WEFT_API DiskPlace disk_place(const Tensor& tensor);
WEFT_API bool rests_on_disk(const Tensor& tensor);

/// Returns the tensor, or a copy in memory of one that rests on disk.
WEFT_API Tensor in_memory(const Tensor& tensor);
/// Returns uninitialised memory in the layout of a tensor, to be passed to `write_to_disk`.
WEFT_API Tensor memory_like(const Tensor& on_disk);
/// Replaces all elements of a tensor that rests on disk by those of one with the same layout.
WEFT_API void write_to_disk(const Tensor& on_disk, const Tensor& values);

}  // namespace weft
