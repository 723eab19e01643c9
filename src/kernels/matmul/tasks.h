// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "src/base/parallel.h"
#include "weft/export.h"
#include "weft/extend/fixed_products.h"
#include "weft/storage.h"

namespace weft {

/// The number of threads that a product called now may use: one inside a parallel region.
inline int usable_threads() { return omp_in_parallel() ? 1 : omp_get_max_threads(); }

/// While an instance exists, products of the calling thread use `threads` threads.
class ThreadLimit : NotCopied {
 public:
  explicit ThreadLimit(int threads) : before_(omp_get_max_threads()) {
    if (threads != before_) omp_set_num_threads(threads);
  }
  ~ThreadLimit() {
    if (omp_get_max_threads() != before_) omp_set_num_threads(before_);
  }

 private:
  int before_;
};

/// Calls task(i, thread) for each i below `tasks`, with thread < `threads`; products inside a task
/// use one thread, and are not cut into tiles. Rethrows the first exception of a task.
template <class Task> void run_tasks(int64_t tasks, int threads, const Task& task) {
  if (threads > 1 && tasks > 1) {
    std::exception_ptr error;
#pragma omp parallel num_threads(threads)
    {
      ThreadLimit one(1);
      const FixedProducts whole(false);
#pragma omp for schedule(dynamic)
      for (int64_t i = 0; i < tasks; ++i) {
        try {
          task(i, omp_get_thread_num());
        } catch (...) {
#pragma omp critical(weft_run_tasks)
          if (!error) error = std::current_exception();
        }
      }
    }
    if (error) std::rethrow_exception(error);
    return;
  }
  ThreadLimit one(1);
  const FixedProducts whole(false);
  for (int64_t i = 0; i < tasks; ++i) task(i, 0);
}

/// Temporary memory for one call, aligned to 64 bytes: small pieces from a buffer that each thread
/// keeps, larger ones from the allocator, which counts them.
class ScratchMemory : NotCopied {
 public:
  ScratchMemory() : mark_(kept_buffer().used) {}
  ~ScratchMemory() { kept_buffer().used = mark_; }

  template <class T> T* take(int64_t count) {
    return static_cast<T*>(take_bytes(static_cast<size_t>(count) * sizeof(T)));
  }
  void* take_bytes(size_t bytes) {
    bytes = (bytes + 63) / 64 * 64;
    KeptBuffer& kept = kept_buffer();
    if (bytes <= kKeptBytes - kept.used) {
      void* piece = kept.bytes + kept.used;
      kept.used += bytes;
      return piece;
    }
    PurposeScope purpose(Purpose::other);
    large_.push_back(Storage::allocate(bytes));
    return large_.back()->data();
  }

 private:
  static constexpr size_t kKeptBytes = size_t{128} << 10;
  struct KeptBuffer {
    size_t used = 0;
    alignas(64) std::byte bytes[kKeptBytes];
  };
  static KeptBuffer& kept_buffer() {
    WEFT_STATIC_TLS static thread_local std::unique_ptr<KeptBuffer> buffer;
    if (!buffer) [[unlikely]]
      buffer.reset(new KeptBuffer);  // make_unique would clear it
    return *buffer;
  }

  size_t mark_;
  std::vector<Ref<Storage>> large_;
};

}  // namespace weft
