// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <filesystem>
#include <set>
#include <span>
#include <string>

#include "train/resume.h"
#include "weft/checkpoint_report.h"
#include "weft/extend/hash.h"
#include "weft/extend/run_folder.h"
#include "weft/extend/store.h"

namespace weft {

/// Runs of one job have different folders of checkpoints, and so different folders of copies.
void RunSaver::begin_copies() {
  const char* folder = std::getenv("WEFT_COPIES");
  if (!folder || !*folder) return;
  const std::string run = located(options_.save);
  copies_ = concat(folder, "/", xxh3_of(std::as_bytes(std::span(run))));
  copier_.emplace(world_, copies_,
                  CheckpointOptions{.keep = 1,
                                    .continues = true,
                                    .refuse_non_finite = false,
                                    .lease_seconds = options_.lease_seconds});
}

static int64_t step_of(const std::string& checkpoint) {
  return checkpoint_contents(checkpoint).numbers.at("step/value");
}

std::string RunSaver::newest_copy(const std::set<std::string>& suspects) const {
  if (!copier_) return {};
  return told_by_first(world_, [&]() -> std::string {
    for (const std::string& path : list_checkpoints(copies_)) {
      const auto report = inspect_existing(path, {.depth = Inspection::headers});
      const bool is_good =
          report && report->verdict == Verdict::complete && report->non_finite <= 0;
      if (!is_good || suspects.contains(path)) continue;
      const std::string saved =
          is_directory(options_.save) ? newest_complete_checkpoint(options_.save) : "";
      return !saved.empty() && step_of(saved) > step_of(path) ? "" : path;
    }
    return {};
  });
}

}  // namespace weft
