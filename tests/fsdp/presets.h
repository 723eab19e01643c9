// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "weft/fsdp.h"

namespace weft {

struct Preset {
  const char* name;
  FullyShardOptions options;
};

/// The first two gather parameters for each use, the others once a step. `more` is the last one.
inline std::vector<Preset> presets_and(const Preset& more) {
  return {{"full_shard", {}},
          {"kept", {.reshard_after_forward = false}},
          {"zero2", {.strategy = Strategy::zero2()}},
          {"zero1", {.strategy = Strategy::zero1()}},
          {"ddp", {.strategy = Strategy::ddp()}},
          more};
}

}  // namespace weft
