// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#if defined(WEFT_WITH_CUDA) && !defined(WEFT_CUDA_EMULATED)
#define WEFT_WITH_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace weft::cuda {

// Stretches of the calling thread's time, "matmul" or "step 3", as NVTX tells them to Nsight
// Systems. Where nobody listens one costs two branches, and nothing in builds without CUDA.

#ifdef WEFT_WITH_NVTX
inline void begin_range(const char* name) { nvtxRangePushA(name); }
inline void begin_range(const char* name, int64_t number) {
  nvtxEventAttributes_t range{};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.messageType = NVTX_MESSAGE_TYPE_ASCII;
  range.message.ascii = name;
  range.payloadType = NVTX_PAYLOAD_TYPE_INT64;
  range.payload.llValue = number;
  nvtxRangePushEx(&range);
}
inline void end_range() { nvtxRangePop(); }
#else
inline void begin_range(const char*) {}
inline void begin_range(const char*, int64_t) {}
inline void end_range() {}
#endif

}  // namespace weft::cuda
