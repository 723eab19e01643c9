// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <new>
#include <vector>

namespace weft {

/// A thread's memory for objects of one type: freed ones are kept for the next, up to a bound.
template <class T>
class MemoryPool {
 public:
  ~MemoryPool() {
    for (void* memory : free_) ::operator delete(memory);
    alive() = false;
  }

  static MemoryPool* of_thread() {
    static thread_local MemoryPool pool;
    return alive() ? &pool : nullptr;
  }

  void* take() {
    if (free_.empty()) return ::operator new(sizeof(T));
    void* memory = free_.back();
    free_.pop_back();
    return memory;
  }

  void give(void* memory) {
    if (free_.size() < kMost) {
      free_.push_back(memory);
    } else {
      ::operator delete(memory);
    }
  }

 private:
  static constexpr size_t kMost = 4096;
  /// False once the thread's pool is gone: objects may outlive it.
  static bool& alive() {
    static thread_local bool flag = true;
    return flag;
  }
  std::vector<void*> free_;
};

template <class T>
void* pool_allocate() {
  MemoryPool<T>* pool = MemoryPool<T>::of_thread();
  return pool ? pool->take() : ::operator new(sizeof(T));
}

template <class T>
void pool_free(void* memory) {
  MemoryPool<T>* pool = MemoryPool<T>::of_thread();
  pool ? pool->give(memory) : ::operator delete(memory);
}

}  // namespace weft
