// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "weft/fsdp_module.h"

namespace weft::fsdp {

class ParamGroup;

/// Settings of a group by the methods of FsdpModule.
struct GroupControls {
  /// All reductions, and those of the last micro-step.
  bool reduces = true, all_reduces = true;
  /// Comes before the option.
  std::optional<bool> reshards_after_forward;
  bool reshards_after_backward = true, unshards_in_backward = true;
  bool keeps_storage = false;
  /// If not empty, groups to unshard early, in place of the recorded order.
  std::vector<std::weak_ptr<ParamGroup>> forward_prefetch, backward_prefetch;
  CustomCollective all_gather;
};

}  // namespace weft::fsdp
