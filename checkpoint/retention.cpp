// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "checkpoint/file_writer.h"
#include "checkpoint/manifest.h"
#include "checkpoint/run_directory.h"
#include "checkpoint/source.h"
#include "weft/checkpoint.h"
#include "weft/error.h"
#include "weft/extend/store.h"

namespace weft {

/// True when the path holds what its name says, or nothing: a name alone removes nothing.
static bool is_removable(const std::string& path, const CheckpointReport& report) {
  if (report.ranks > 0) return report.verdict != Verdict::mixed;
  const RankFileNames names = rank_files_in(path);
  return names.names.empty() && names.strangers.empty();
}

/// Calls visit(name, generation) for each checkpoint whose removal was interrupted.
template <class Visit> static void for_hidden(const std::string& directory, const Visit& visit) {
  std::error_code error;
  for (const StoredName& stored : Store::of(directory).list(directory, error)) {
    int64_t step = 0;
    std::string generation;
    if (!stored.name.starts_with(kHiddenPrefix)) continue;
    const std::string name = stored.name.substr(kHiddenPrefix.size());
    if (parse_directory_name(name, step, generation)) visit(stored.name, generation);
  }
}

void add_hidden(const std::string& directory, OwnCheckpoints& own) {
  for_hidden(directory, [&](const std::string&, const std::string& generation) {
    own.earlier.insert(generation);
  });
}

/// Removes what an earlier removal of own checkpoints left when it was interrupted.
static void remove_hidden(const std::string& directory, const OwnCheckpoints& own) {
  for_hidden(directory, [&](const std::string& name, const std::string& generation) {
    if (generation == own.generation || own.earlier.contains(generation)) {
      Store::of(directory).remove_directory(directory + "/" + name);
    }
  });
}

/// Aborts uploads of own checkpoints below a step, which a job that was killed left. No rank is
/// that late: its run has saved `oldest` since.
static void abort_old_uploads(const std::string& directory, int64_t oldest,
                              const OwnCheckpoints& own) {
  if (!is_object_path(directory)) return;
  abort_uploads(directory, [&](const std::string& name) {
    int64_t step = 0;
    std::string generation;
    return parse_directory_name(name, step, generation) && step < oldest &&
           (generation == own.generation || own.earlier.contains(generation));
  });
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
      if (!stays && is_removable(path, report)) Store::of(path).remove_directory(path);
    } else if (counts) {
      // Another rank may have given its file its name and not synced that yet.
      if (!is_object_path(path)) sync_directory(path);
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
      // The user removed it meanwhile.
    } catch (const std::exception& error) {
      if (failed.empty()) failed = error.what();
    }
  }
  remove_hidden(directory, own);
  // While fewer count, uploads of earlier steps may be those of slower ranks.
  if (complete == keep) abort_old_uploads(directory, oldest, own);
  if (!failed.empty()) throw_runtime_error(failed);
}

}  // namespace weft
