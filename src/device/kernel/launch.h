// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <type_traits>

#include "src/device/kernel/thread_block.h"
#include "weft/stream.h"

#ifdef __CUDACC__
#include "src/device/cuda/checked.h"
#include "src/device/cuda/runtime.h"
#include "weft/error.h"
#endif

namespace weft::cuda {

// A kernel is a trivially copyable struct whose members are its arguments, with either
//   WEFT_DEVICE void operator()(const Thread& thread) const, for `launch`: thread i handles
//   elements i, i + thread.count, ...; or template <class ThreadBlock> WEFT_DEVICE void
//   operator()(const ThreadBlock& block) const, for `launch_blocks`.

inline constexpr int kThreadsPerBlock = 256;
/// Largest grid of `launch`, in blocks: enough to fill the largest GPU some 15 times, so that its
/// processors end together. On an H200 most elementwise ops take 2 to 6 % longer with 2048.
inline constexpr int64_t kMostBlocks = 16384;

inline namespace WEFT_COMPILER {

#ifdef __CUDACC__

template <class Kernel>
__global__ void __launch_bounds__(kThreadsPerBlock)
    run_threads(const __grid_constant__ Kernel kernel) {
  kernel(Thread{int64_t{blockIdx.x} * kThreadsPerBlock + threadIdx.x,
                int64_t{gridDim.x} * kThreadsPerBlock});
}

template <int kThreads, class Kernel>
__global__ void __launch_bounds__(kThreads) run_blocks(const __grid_constant__ Kernel kernel) {
  kernel(ThreadBlock<kThreads>());
}

/// Queues a kernel for `work` elements, one or more per thread; nothing when `work` is 0.
template <class Kernel> void launch(const Kernel& kernel, int64_t work, const Stream& stream) {
  static_assert(std::is_trivially_copyable_v<Kernel>);
  if (work <= 0) return;
  const int64_t blocks = std::min((work + kThreadsPerBlock - 1) / kThreadsPerBlock, kMostBlocks);
  use_device(stream.device.index);  // an allocation since `current_stream` may have changed it
  run_threads<<<static_cast<unsigned>(blocks), kThreadsPerBlock, 0,
                static_cast<cudaStream_t>(stream.handle)>>>(kernel);
  check("kernel launch", cudaGetLastError());
}

/// Allows a kernel all the shared memory that the device permits per block (the default is 48 KiB,
/// less static shared memory). Once for all sizes, because other threads launch it too.
template <int kThreads, class Kernel> void allow_all_shared_memory(int device) {
  static std::atomic<uint64_t> allowed{0};  // one bit per device
  const uint64_t bit = uint64_t{1} << (device % 64);
  if (allowed.load(std::memory_order_acquire) & bit) return;
  cudaFuncAttributes own{};
  check("cudaFuncGetAttributes", cudaFuncGetAttributes(&own, run_blocks<kThreads, Kernel>));
  const auto most = static_cast<int>(block_memory(device) - own.sharedSizeBytes);
  check("cudaFuncSetAttribute",
        cudaFuncSetAttribute(run_blocks<kThreads, Kernel>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, most));
  allowed.fetch_or(bit, std::memory_order_release);
}

/// Queues a grid of `blocks` blocks of `kThreads` threads with `shared_bytes` of shared memory.
template <int kThreads, class Kernel>
void launch_blocks(const Kernel& kernel, int64_t blocks, size_t shared_bytes,
                   const Stream& stream) {
  static_assert(std::is_trivially_copyable_v<Kernel>);
  if (blocks <= 0) return;
  if (blocks > INT32_MAX)
    fail("kernel: number of blocks is ", blocks, ", expected at most ", INT32_MAX);
  use_device(stream.device.index);
  constexpr size_t kSurelyThere = size_t{32} << 10;
  if (shared_bytes > kSurelyThere) allow_all_shared_memory<kThreads, Kernel>(stream.device.index);
  run_blocks<kThreads><<<static_cast<unsigned>(blocks), kThreads, shared_bytes,
                         static_cast<cudaStream_t>(stream.handle)>>>(kernel);
  check("kernel launch", cudaGetLastError());
}

#else

inline constexpr int kEmulatedGridThreads = 3;
inline constexpr int kEmulatedBlockThreads = 8;

template <class Kernel> void launch(const Kernel& kernel, int64_t work, const Stream& stream) {
  static_assert(std::is_trivially_copyable_v<Kernel>);
  if (work <= 0) return;
  emulated::enqueue_kernel(stream, [kernel] {
    for (int64_t i = 0; i < kEmulatedGridThreads; ++i) kernel(Thread{i, kEmulatedGridThreads});
  });
}

template <int kThreads, class Kernel>
void launch_blocks(const Kernel& kernel, int64_t blocks, size_t shared_bytes,
                   const Stream& stream) {
  static_assert(std::is_trivially_copyable_v<Kernel>);
  if (blocks <= 0) return;
  emulated::enqueue_kernel(stream, [kernel, blocks, shared_bytes] {
    constexpr int threads = std::min(kThreads, kEmulatedBlockThreads);
    emulated::BlockMemory memory;
    memory.values.resize(threads * ThreadBlock<kThreads>::kLargestValue);
    for (int64_t block = 0; block < blocks; ++block) {
      memory.shared.assign(shared_bytes, std::byte{0xff});
      emulated::Fibers::run(threads, [&](int thread) {
        kernel(ThreadBlock<kThreads>(thread, threads, block, blocks, memory));
      });
    }
  });
}

#endif

}  // namespace WEFT_COMPILER
}  // namespace weft::cuda
