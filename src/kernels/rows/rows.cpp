// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/rows/rows.h"

#include "weft/error.h"

namespace weft {

Rows::Rows(const MemoryBlock& block, int dim) : data_(block.as<char>()), dtype_(block.dtype) {
  int last = -1;
  for (int i = 0; i < block.shape.ndim(); ++i) {
    if (i == dim) {
      size_ = block.shape[i];
      stride_ = block.shape[i] == 1 ? 1 : block.strides[i];
      continue;
    }
    count_ *= block.shape[i];
    if (block.shape[i] == 1) continue;
    const bool one_run = last >= 0 && strides_[last] == block.strides[i] * block.shape[i];
    if (!one_run) sizes_[++last] = 1;
    sizes_[last] *= block.shape[i];
    strides_[last] = block.strides[i];
  }
  ndim_ = last < 0 ? 1 : last + 1;
}

Rows Rows::values(const char* what, const MemoryBlock& block, const Rows& rows) {
  Rows values(block, -1);
  if (values.count_ == 1 && rows.count_ != 1) {
    values.count_ = rows.count_;
    values.strides_[0] = 0;
  }
  if (values.count_ != rows.count_) {
    fail(what, ": values are ", block.shape, ", expected one for each of ", rows.count_, " rows");
  }
  return values;
}

void check_runs_on_cpu(const char* what, Device device) {
  if (device.kind == DeviceKind::cpu) return;
  fail(what, ": its kernel was compiled for the CPU alone, expected its file in weft_cuda_sources");
}

void check_rows(const char* what, const Rows& a, const Rows& b) {
  if (a.count() != b.count() || a.size() != b.size()) {
    fail(what, ": rows are ", b.count(), " of ", b.size(), ", expected ", a.count(), " of ",
         a.size());
  }
}

}  // namespace weft
