// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/export.h"
#include "weft/mesh.h"

namespace weft {

/// The costs that plans assume between ranks that differ along the axes of a mesh.
struct Link {
  bool crosses_hosts = false;
  double seconds_per_byte = 0;
  /// The cost of copies within a rank.
  double seconds_per_copied_byte = 0;
};
WEFT_API Link link_along(const DeviceMesh& mesh);

}  // namespace weft
