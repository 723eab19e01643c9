// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>

namespace weft {

/// Of the checkpoints of `directory` whose step is below `step` and whose generation is one of
/// `generations`, removes each that is older than the `keep` newest complete ones, complete or not;
/// nothing while there are fewer. What is kept is made to survive a crash first.
/// std::runtime_error naming the first that could not be removed, after the others are.
void retain_newest(const std::string& directory, int64_t step, int keep,
                   const std::set<std::string>& generations);

/// Of the checkpoints that lie there.
std::set<std::string> generations_in(const std::string& directory);

}  // namespace weft
