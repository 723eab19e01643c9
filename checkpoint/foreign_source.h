// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/source.h"

namespace weft {

/// Shards as PyTorch's Hugging Face writer leaves them: each file tells in DCP_SHARDING_INFO where
/// its parts lie in the whole, whose shape follows from them.
std::unique_ptr<CheckpointSource> open_shards(const std::string& path,
                                              const std::vector<std::string>& names);

/// Whole tensors: what TensorFiles opens.
std::unique_ptr<CheckpointSource> open_model(const std::string& path);

}  // namespace weft
