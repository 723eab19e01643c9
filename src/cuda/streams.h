// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "weft/block.h"
#include "weft/stream.h"

namespace weft::cuda {

/// What a rank's streams are for: kernels; a unit's parameters on their way; gradients on theirs;
/// what goes to the host and back.
enum class StreamRole : uint8_t { compute, gather, scatter, copy };
inline constexpr int kStreamRoles = 4;

/// The calling thread's stream of that role, made when it is first asked for.
Stream stream_for(Device device, StreamRole role);

/// Where the calling thread's kernels on `device` go: the stream of its Context where that is on
/// the device, else its stream of computing.
Stream current_stream(Device device);

/// True when this build has kernels for it and the block lies on a GPU.
#ifdef WEFT_WITH_CUDA
inline bool on_cuda(const Block& block) { return block.device.kind == DeviceKind::cuda; }
inline constexpr bool kWithCuda = true;
#else
inline constexpr bool on_cuda(const Block&) { return false; }
inline constexpr bool kWithCuda = false;
#endif

}  // namespace weft::cuda
