// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "weft/storage.h"

namespace weft::fsdp {

/// Numbered buffers for whole parameters and gradients, used again and again: no step makes memory
/// after the first.
class BufferPool {
 public:
  /// A free buffer of exactly so many bytes, or a new one.
  Ref<Storage> take(size_t bytes);
  void give(Ref<Storage> buffer);
  /// Of all buffers made.
  int64_t bytes() const { return bytes_; }
  /// The number of a buffer, from 0 in the order they were made.
  int number(const Storage& buffer) const;

 private:
  std::vector<Ref<Storage>> all_;
  std::vector<Ref<Storage>> free_;
  int64_t bytes_ = 0;
};

}  // namespace weft::fsdp
