// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "src/comm/transport.h"

namespace weft {

/// Returns one rank's end of a group whose ranks cannot access each other's GPUs: GPU memory is
/// exchanged by NCCL, all else by `host`, which must have a world. Returns `host` in a build
/// without NCCL, and where its library is missing.
#ifdef WEFT_WITH_NCCL
std::shared_ptr<Transport> with_nccl(std::shared_ptr<Transport> host);
#else
inline std::shared_ptr<Transport> with_nccl(std::shared_ptr<Transport> host) { return host; }
#endif

}  // namespace weft
