// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "checkpoint/source.h"

namespace weft {

/// PyTorch's and weft's names of an optimizer's options, and of its moments: "" for a moment that
/// PyTorch lacks.
std::span<const std::pair<std::string, std::string>> torch_options();
std::string_view torch_moment(std::string_view moment);

/// Returns true if the directory has the `.metadata` of PyTorch's distributed checkpoint.
bool is_dcp(const std::string& directory);

/// Data that `torch.distributed.checkpoint.save` wrote, read without PyTorch. A key is the path
/// within the state dict that was saved: "<first>/<others, with dots between them>"; the only word,
/// or "<word>/value" where other values have longer paths. An optimizer's state and options have
/// weft's names: "<part>/<parameter>.m" for "exp_avg". Numbers that are no tensors are among
/// `numbers`, floats by their bits; `contents.note` names other values. std::invalid_argument for a
/// file that is missing or malformed, a pickle that holds more than data, and an option whose steps
/// weft does not compute (amsgrad, maximize, dampening, weight decay in the gradients).
CheckpointSource dcp_source(const std::string& directory);

}  // namespace weft
