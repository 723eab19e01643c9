// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/block.h"
#include "weft/stream.h"

namespace weft::cuda {

using weft::current_stream;
using weft::stream_for;
using weft::StreamRole;

/// True when this build has CUDA kernels and the block is on a GPU.
#ifdef WEFT_WITH_CUDA
inline bool on_cuda(const MemoryBlock& block) { return block.device.kind == DeviceKind::cuda; }
inline constexpr bool kWithCuda = true;
#else
inline constexpr bool on_cuda(const MemoryBlock&) { return false; }
inline constexpr bool kWithCuda = false;
#endif

/// Returns the role of the calling thread's stream; kStreamRoles for others, such as a graph's.
inline int role_of(const Stream& stream) {
  for (int role = 0; role < kStreamRoles; ++role) {
    if (stream_for(stream.device, static_cast<StreamRole>(role)).handle == stream.handle) {
      return role;
    }
  }
  return kStreamRoles;
}

/// Returns whether it is the calling thread's stream of StreamRole::side, without creating one.
bool is_side(const Stream& stream);

}  // namespace weft::cuda
