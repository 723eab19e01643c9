// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "weft/export.h"
#include "weft/storage.h"

namespace weft {

/// Temporary memory for one call, aligned to 64 bytes: small pieces from a buffer that each thread
/// keeps, larger ones from the allocator, which counts them.
class Scratch : NotCopied {
 public:
  Scratch();
  ~Scratch();

  template <class T> T* take(int64_t count) {
    return static_cast<T*>(take_bytes(static_cast<size_t>(count) * sizeof(T)));
  }
  void* take_bytes(size_t bytes);

 private:
  size_t mark_;
  std::vector<Ref<Storage>> large_;
};

}  // namespace weft
