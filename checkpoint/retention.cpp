// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <filesystem>

#include "checkpoint/file_writer.h"
#include "checkpoint/manifest.h"
#include "checkpoint/run_directory.h"
#include "checkpoint/source.h"
#include "weft/checkpoint.h"
#include "weft/error.h"

namespace weft {

namespace fs = std::filesystem;

/// Whether what lies there is what the name says, or nothing: a name alone removes nothing.
static bool is_removable(const std::string& path, const CheckpointReport& report) {
  if (report.ranks > 0) return report.verdict != Verdict::mixed;
  const RankFileNames names = rank_files_in(path);
  return names.names.empty() && names.strangers.empty();
}

static constexpr std::string_view kRemoved = ".removed-";

static void remove_all(const std::string& path) {
  std::error_code error;
  do {
    fs::remove_all(path, error);
  } while (error == std::errc::interrupted);
  // Network file systems keep files that are open under other names; the next save removes them.
  const bool is_later = error == std::errc::directory_not_empty && path.find(kRemoved) != path.npos;
  if (error && !is_later) fail_call("remove", "checkpoint: ", path, ": ", error.message());
}

/// Removes the name first, so that readers see all of a checkpoint or nothing.
static void remove_whole(const std::string& path) {
  const fs::path from(path);
  const std::string hidden = (from.parent_path() / concat(kRemoved, from.filename().string()));
  remove_all(::rename(path.c_str(), hidden.c_str()) == 0 ? hidden : path);
}

/// Removes what an earlier removal of own checkpoints left when it was interrupted.
static void remove_hidden(const std::string& directory, const OwnCheckpoints& own) {
  std::error_code error;
  std::vector<std::string> found;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    int64_t step = 0;
    std::string generation;
    if (!name.starts_with(kRemoved)) continue;
    if (!parse_directory_name(name.substr(kRemoved.size()), step, generation)) continue;
    if (generation == own.generation || own.earlier.contains(generation)) {
      found.push_back(at->path().string());
    }
  }
  for (const std::string& path : found) remove_all(path);
}

void retain_newest(const std::string& directory, int64_t step, int keep,
                   const OwnCheckpoints& own) {
  int complete = 0;
  bool has_finite = false;
  int64_t oldest = step;
  std::string failed;
  const auto visit = [&](const std::string& path, int64_t its_step, bool is_mine) {
    const CheckpointReport report = inspect_checkpoint(path, {.depth = Inspection::headers});
    const bool counts =
        report.verdict == Verdict::complete && (is_mine || its_step <= own.resumed_step);
    const bool is_finite = counts && report.non_finite <= 0;
    if (complete == keep) {
      // Among several checkpoints of one step, the one that the run resumed from is unknown. If no
      // kept checkpoint is finite, the newest finite one stays too.
      const bool stays = its_step >= oldest || (is_finite && !has_finite);
      if (!stays && is_removable(path, report)) remove_whole(path);
    } else if (counts) {
      // Another rank may have given its file its name and not synced that yet.
      sync_directory(path);
      oldest = its_step;
      ++complete;
    }
    has_finite = has_finite || is_finite;
  };
  for (const auto& [path, its_step, generation] : sorted_checkpoints(directory)) {
    const bool is_mine = generation == own.generation;
    if (its_step >= step || !(is_mine || own.earlier.contains(generation))) continue;
    try {
      visit(path, its_step, is_mine);
    } catch (const CheckpointRemoved&) {
      // By hand, meanwhile.
    } catch (const std::exception& error) {
      if (failed.empty()) failed = error.what();
    }
  }
  remove_hidden(directory, own);
  if (!failed.empty()) throw_runtime_error(failed);
}

}  // namespace weft
