// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "weft/export.h"

namespace weft {

/// Writes a checkpoint (whatever `load` reads) as a directory that PyTorch's
/// `torch.distributed.checkpoint.load` reads: `.metadata`, and one `.distcp` file with every tensor
/// in parts of at most 256 MiB, bit for bit. "model/0.weight" is {"model": {"0.weight": ...}}
/// there; the state of an optimizer has PyTorch's names, {"optimizer": {"state": {"0.weight":
/// {"exp_avg": ...}}, "param_groups": [...]}}, as `get_optimizer_state_dict` gives it; parameters
/// that `decays` leaves out have a group whose weight decay is 0. For one rank. `progress` is
/// called with the bytes written so far. std::invalid_argument when the directory has a `.metadata`
/// already or an optimizer is not Adam, AdamW or SGD; std::runtime_error when the system fails.
WEFT_API void export_dcp(const std::string& checkpoint, const std::string& directory,
                         const std::function<void(int64_t bytes)>& progress = {});

}  // namespace weft
