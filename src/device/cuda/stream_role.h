// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/stream.h"

namespace weft::cuda {

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
