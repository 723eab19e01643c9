// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <type_traits>

#include "src/device/kernel/team.h"
#include "weft/stream.h"

#ifdef __CUDACC__
#include "src/device/cuda/checked.h"
#endif

namespace weft::cuda {

// A kernel is a trivially copyable struct whose members are its arguments, with either
//   WEFT_DEVICE void operator()(const Lane& lane) const, for `launch`: thread i handles elements
//   i, i + lane.count, ...; or
//   template <class Team> WEFT_DEVICE void operator()(const Team& team) const, for `launch_teams`.

inline constexpr int kLaneThreads = 256;
/// Largest grid of `launch`, in blocks: enough to fill the largest GPU a few times.
inline constexpr int64_t kMostLaneTeams = 2048;

inline namespace WEFT_COMPILER {

#ifdef __CUDACC__

template <class Kernel>
__global__ void __launch_bounds__(kLaneThreads) run_lanes(const __grid_constant__ Kernel kernel) {
  kernel(Lane{int64_t{blockIdx.x} * kLaneThreads + threadIdx.x, int64_t{gridDim.x} * kLaneThreads});
}

template <int kThreads, class Kernel>
__global__ void __launch_bounds__(kThreads) run_teams(const __grid_constant__ Kernel kernel) {
  kernel(Team<kThreads>());
}

/// Queues a kernel for `work` elements, one or more per thread; nothing when `work` is 0.
template <class Kernel>
void launch(const Kernel& kernel, int64_t work, const Stream& stream) {
  static_assert(std::is_trivially_copyable_v<Kernel>);
  if (work <= 0) return;
  const int64_t teams = std::min((work + kLaneThreads - 1) / kLaneThreads, kMostLaneTeams);
  run_lanes<<<static_cast<unsigned>(teams), kLaneThreads, 0,
              static_cast<cudaStream_t>(stream.handle)>>>(kernel);
  check("kernel launch", cudaGetLastError());
}

/// Allows a kernel all the shared memory that the device permits per block (the default is 48 KiB,
/// less static shared memory). Once for all sizes, because other threads launch it too.
template <int kThreads, class Kernel>
void allow_all_shared_memory(int device) {
  static std::atomic<uint64_t> allowed{0};  // one bit per device
  const uint64_t bit = uint64_t{1} << (device % 64);
  if (allowed.load(std::memory_order_acquire) & bit) return;
  cudaFuncAttributes own{};
  check("cudaFuncGetAttributes", cudaFuncGetAttributes(&own, run_teams<kThreads, Kernel>));
  int most = 0;
  check("cudaDeviceGetAttribute",
        cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  check("cudaFuncSetAttribute", cudaFuncSetAttribute(run_teams<kThreads, Kernel>,
                                                     cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                     most - static_cast<int>(own.sharedSizeBytes)));
  allowed.fetch_or(bit, std::memory_order_release);
}

/// Queues a grid of `teams` blocks of `kThreads` threads with `shared_bytes` of shared memory.
template <int kThreads, class Kernel>
void launch_teams(const Kernel& kernel, int64_t teams, size_t shared_bytes, const Stream& stream) {
  static_assert(std::is_trivially_copyable_v<Kernel>);
  if (teams <= 0) return;
  constexpr size_t kSurelyThere = size_t{32} << 10;
  if (shared_bytes > kSurelyThere) allow_all_shared_memory<kThreads, Kernel>(stream.device.index);
  run_teams<kThreads><<<static_cast<unsigned>(teams), kThreads, shared_bytes,
                        static_cast<cudaStream_t>(stream.handle)>>>(kernel);
  check("kernel launch", cudaGetLastError());
}

#else

inline constexpr int kEmulatedLanes = 3;
inline constexpr int kEmulatedThreads = 8;

template <class Kernel>
void launch(const Kernel& kernel, int64_t work, const Stream& stream) {
  static_assert(std::is_trivially_copyable_v<Kernel>);
  if (work <= 0) return;
  emulated::enqueue_kernel(stream, [kernel] {
    for (int64_t i = 0; i < kEmulatedLanes; ++i) kernel(Lane{i, kEmulatedLanes});
  });
}

template <int kThreads, class Kernel>
void launch_teams(const Kernel& kernel, int64_t teams, size_t shared_bytes, const Stream& stream) {
  static_assert(std::is_trivially_copyable_v<Kernel>);
  if (teams <= 0) return;
  emulated::enqueue_kernel(stream, [kernel, teams, shared_bytes] {
    constexpr int threads = std::min(kThreads, kEmulatedThreads);
    constexpr size_t kLargestValue = 64;
    emulated::TeamMemory memory;
    memory.values.resize(threads * kLargestValue);
    for (int64_t team = 0; team < teams; ++team) {
      memory.shared.assign(shared_bytes, std::byte{0xff});
      emulated::Fibers::run(threads, [&](int thread) {
        kernel(Team<kThreads>(thread, threads, team, teams, memory));
      });
    }
  });
}

#endif

}  // namespace WEFT_COMPILER
}  // namespace weft::cuda
