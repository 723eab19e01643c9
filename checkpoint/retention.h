// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace weft {

/// Of the checkpoints of `directory` whose step is below `step`, removes each that is older than
/// the `keep` newest complete ones, complete or not; nothing while there are fewer. What is kept is
/// made to survive a crash first.
void retain_newest(const std::string& directory, int64_t step, int keep);

}  // namespace weft
