// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>

namespace weft {

/// The checkpoints that a run may count and remove.
struct OwnCheckpoints {
  std::string generation;
  /// Generations of the runs that this run resumed from, and the last step that it took from them.
  /// Their checkpoints of later steps do not count: this run passed over them, even if their
  /// headers are sound.
  std::set<std::string> earlier;
  int64_t resumed_step = -1;
};

/// Considers the checkpoints `own` of `directory` whose step is below `step`. Removes those of a
/// lower step than the `keep` newest complete ones that count, complete or not; removes nothing
/// while fewer count.
/// What is kept is made to survive a crash first. std::runtime_error naming the first that could
/// not be removed, after the others are.
void retain_newest(const std::string& directory, int64_t step, int keep, const OwnCheckpoints& own);

/// The checkpoints that lie there, by name, and the generations that such names say.
std::set<std::string> paths_in(const std::string& directory);
std::set<std::string> generations_of(const std::set<std::string>& paths);
/// std::runtime_error when the directory holds a complete checkpoint of `step` or above that is
/// neither of `generation` nor in `known`.
void check_no_newer_run(const std::string& directory, int64_t step, const std::string& generation,
                        const std::set<std::string>& known);

}  // namespace weft
