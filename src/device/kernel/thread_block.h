// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "src/base/numeric.h"

#ifdef __CUDACC__
#include <cub/block/block_reduce.cuh>
#else
#include "src/device/emulated/device.h"
#endif

/// WEFT_DEVICE marks functions that run only on a device.
#ifdef __CUDACC__
#define WEFT_DEVICE __device__
#else
#define WEFT_DEVICE
#endif

namespace weft::cuda {

// A kernel thread's view of itself. nvcc compiles kernels for a GPU; g++ compiles the same source
// for the emulated device of the tests, which runs smaller blocks than requested: kernels must take
// thread and block counts from here.

/// A thread of a kernel whose threads are independent.
struct Thread {
  /// The thread's index in the grid, and the number of threads in the grid.
  int64_t index, count;
};

inline namespace WEFT_COMPILER {

#ifdef __CUDACC__

/// A thread of a CUDA block of kThreads threads.
template <int kThreads> class ThreadBlock {
 public:
  WEFT_DEVICE int thread() const { return static_cast<int>(threadIdx.x); }
  WEFT_DEVICE int threads() const { return kThreads; }
  WEFT_DEVICE int64_t index() const { return blockIdx.x; }
  WEFT_DEVICE int64_t blocks() const { return gridDim.x; }
  /// Block barrier (__syncthreads): writes before it are visible to the block after it.
  WEFT_DEVICE void sync() const { __syncthreads(); }
  /// Dynamic shared memory of the block, of the size passed to the launch.
  template <class T> WEFT_DEVICE T* shared() const {
    extern __shared__ __align__(16) std::byte block_memory[];
    return reinterpret_cast<T*>(block_memory);
  }
  /// Combines all threads' values by R, in a fixed order; every thread gets the result.
  template <class R, class T> WEFT_DEVICE T reduce(T value) const {
    using Reduce = cub::BlockReduce<T, kThreads>;
    __shared__ typename Reduce::TempStorage storage;
    __shared__ T result;
    const T total = Reduce(storage).Reduce(value, Combine<R>());
    if (threadIdx.x == 0) result = total;
    __syncthreads();
    const T all = result;
    __syncthreads();
    return all;
  }

 private:
  template <class R> struct Combine {
    template <class T> WEFT_DEVICE T operator()(const T& a, const T& b) const {
      return R::combine(a, b);
    }
  };
};

/// *to += value, atomically.
template <class T> WEFT_DEVICE void add_atomically(T* to, T value) { atomicAdd(to, value); }

#else

template <int kThreads> class ThreadBlock {
 public:
  /// Bytes of the largest value of `reduce`.
  static constexpr size_t kLargestValue = 64;

  ThreadBlock(int thread, int threads, int64_t block, int64_t blocks, emulated::BlockMemory& memory)
      : thread_(thread), threads_(threads), index_(block), blocks_(blocks), memory_(memory) {}

  int thread() const { return thread_; }
  int threads() const { return threads_; }
  int64_t index() const { return index_; }
  int64_t blocks() const { return blocks_; }
  void sync() const { emulated::Fibers::sync(); }
  template <class T> T* shared() const { return reinterpret_cast<T*>(memory_.shared.data()); }
  template <class R, class T> T reduce(T value) const {
    static_assert(sizeof(T) <= kLargestValue);
    std::byte* values = memory_.values.data();
    std::memcpy(values + static_cast<size_t>(thread_) * sizeof(T), &value, sizeof(T));
    sync();
    T all, next;
    std::memcpy(&all, values, sizeof(T));
    for (int i = 1; i < threads_; ++i) {
      std::memcpy(&next, values + static_cast<size_t>(i) * sizeof(T), sizeof(T));
      all = R::combine(all, next);
    }
    sync();
    return all;
  }

 private:
  int thread_, threads_;
  int64_t index_, blocks_;
  emulated::BlockMemory& memory_;
};

template <class T> void add_atomically(T* to, T value) { *to = *to + value; }

#endif

}  // namespace WEFT_COMPILER
}  // namespace weft::cuda
