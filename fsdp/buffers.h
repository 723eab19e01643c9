// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "weft/storage.h"

namespace weft::fsdp {

/// Buffers for whole parameters and gradients, used again and again: no step makes memory after the
/// first.
class BufferPool {
 public:
  /// A free buffer of exactly so many bytes, or a new one.
  Ref<Storage> take(size_t bytes);
  void give(Ref<Storage> buffer);
  /// Where new buffers are, from now on.
  void set_device(Device device);
  /// Of all buffers made there.
  int64_t bytes() const { return bytes_; }

 private:
  std::vector<Ref<Storage>> free_;
  Device device_ = cpu;
  int64_t bytes_ = 0;
};

}  // namespace weft::fsdp
