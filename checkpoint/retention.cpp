// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/run_directory.h"

#include <algorithm>
#include <filesystem>
#include <tuple>
#include <utility>

#include "checkpoint/file_writer.h"
#include "checkpoint/manifest.h"
#include "checkpoint/source.h"
#include "weft/checkpoint.h"
#include "weft/error.h"
#include "weft/extend/told_by_first.h"

namespace weft {

namespace fs = std::filesystem;

std::vector<NamedCheckpoint> named_checkpoints(const std::string& directory) {
  std::error_code error;
  std::vector<NamedCheckpoint> found;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    NamedCheckpoint named{.path = at->path().string()};
    std::error_code ignored;
    if (!parse_directory_name(at->path().filename().string(), named.step, named.generation))
      continue;
    if (!at->is_symlink(ignored) && at->is_directory(ignored)) found.push_back(std::move(named));
  }
  const bool absent =
      error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
  if (absent) fail("checkpoint: ", directory, ": ", error.message());
  if (error) fail_call("readdir", "checkpoint: ", directory, ": ", error.message());
  return found;
}

/// Newest first: by the step that their files state, then by when they were written.
static std::vector<NamedCheckpoint> sorted_checkpoints(const std::string& directory) {
  std::vector<std::tuple<int64_t, fs::file_time_type, NamedCheckpoint>> found;
  for (const NamedCheckpoint& named : named_checkpoints(directory)) {
    std::error_code ignored;
    found.emplace_back(stated_step(named.path, named.step),
                       fs::last_write_time(named.path, ignored), named);
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<NamedCheckpoint> sorted;
  for (auto& [step, time, named] : found) sorted.push_back(std::move(named));
  return sorted;
}

std::vector<std::string> list_checkpoints(const std::string& directory) {
  std::vector<std::string> paths;
  for (const NamedCheckpoint& named : sorted_checkpoints(directory)) paths.push_back(named.path);
  return paths;
}

std::string newest_complete_checkpoint(
    const std::string& directory,
    const std::function<void(const std::string&, const CheckpointReport&)>& passed_over) {
  std::vector<std::pair<std::string, CheckpointReport>> seen;
  size_t chosen = SIZE_MAX;
  for (const std::string& path : list_checkpoints(directory)) {
    seen.emplace_back(path, inspect_checkpoint(path, {.depth = Inspection::headers}));
    const CheckpointReport& report = seen.back().second;
    if (report.verdict != Verdict::complete) continue;
    if (report.non_finite <= 0 || chosen == SIZE_MAX) chosen = seen.size() - 1;
    if (report.non_finite <= 0) break;
  }
  for (size_t i = 0; passed_over && i < std::min(chosen, seen.size()); ++i) {
    passed_over(seen[i].first, seen[i].second);
  }
  return chosen == SIZE_MAX ? "" : seen[chosen].first;
}

std::string newest_complete_checkpoint(const Communicator& world, const std::string& directory) {
  return told_by_first(world, [&] { return newest_complete_checkpoint(directory); });
}

void check_no_newer_run(const std::string& directory, int64_t step, const std::string& generation,
                        const std::set<std::string>& known) {
  for (const auto& [path, its_step, its_generation] : named_checkpoints(directory)) {
    if (its_generation == generation || its_step < step || known.contains(path)) continue;
    const CheckpointReport report = inspect_checkpoint(path, {.depth = Inspection::headers});
    // Ranks of a job that lost the lease may still write files; no run resumes from those.
    if (report.verdict != Verdict::complete) continue;
    fail_call("save", path,
              " was saved by another run since this one started, expected none of step ", step,
              " or above; this run stops, so that the two do not mix");
  }
}

/// Whether what lies there is what the name says, or nothing: a name alone removes nothing.
static bool is_removable(const std::string& path, const CheckpointReport& report) {
  if (report.ranks > 0) return report.verdict != Verdict::mixed;
  const RankFileNames names = rank_files_in(path);
  return names.names.empty() && names.strangers.empty();
}

static void remove_whole(const std::string& path) {
  std::error_code error;
  do {
    fs::remove_all(path, error);
  } while (error == std::errc::interrupted);
  if (error) fail_call("remove", "checkpoint: ", path, ": ", error.message());
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
    } catch (const std::exception& error) {
      if (failed.empty()) failed = error.what();
    }
  }
  if (!failed.empty()) throw_runtime_error(failed);
}

}  // namespace weft
