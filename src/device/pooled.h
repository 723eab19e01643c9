// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <new>
#include <utility>

#include "src/device/memory_blocks.h"
#include "weft/export.h"

namespace weft {

/// Each thread keeps the memory of freed objects of type T for reuse, up to a bound. T inherits the
/// operators, or calls them where it makes and destroys its objects itself, as Storage does.
template <class T> class Pooled {
 public:
  static void* operator new(size_t) {
    Kept* first = kept_.first;
    if (!first) return ::operator new(sizeof(T));
    kept_.first = first->next;
    --kept_.count;
    return first;
  }

  static void operator delete(void* memory) {
    if (kept_.count >= kept_.most) [[unlikely]] {
      if (!may_keep()) return ::operator delete(memory);
    }
    kept_.first = new (memory) Kept{kept_.first};
    ++kept_.count;
  }

 private:
  struct Kept {
    Kept* next;
  };
  struct List {
    Kept* first = nullptr;
    int count = 0;
    /// 0 before the first object is freed and after the thread has ended.
    int most = 0;
    bool ended = false;
  };
  /// Frees the list when its thread ends; objects may outlive the thread.
  struct Owner {
    ~Owner() {
      while (kept_.first) ::operator delete(std::exchange(kept_.first, kept_.first->next));
      kept_.count = kept_.most = 0;
      kept_.ended = true;
    }
  };
  static constexpr int kMost = 4096;

  static bool may_keep() {
    if (!kKeepsMemory || kept_.most > 0 || kept_.ended) return false;
    WEFT_STATIC_TLS static thread_local Owner owner;
    kept_.most = kMost;
    return true;
  }

  WEFT_STATIC_TLS static inline constinit thread_local List kept_{};
};

}  // namespace weft
