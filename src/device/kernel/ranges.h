// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#if defined(WEFT_WITH_CUDA) && !defined(WEFT_CUDA_EMULATED)
#define WEFT_WITH_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace weft::cuda {

// NVTX ranges of the calling thread, such as "matmul" or "step 3", for Nsight Systems. Without a
// profiler a range costs two branches; in builds without CUDA nothing.

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
