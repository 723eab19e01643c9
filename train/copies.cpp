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

/// The folder of the run's copies, where the launcher keeps some, or "". Runs of one job have
/// different folders of checkpoints, and so of copies.
static std::string folder_of_copies(const ResumeOptions& options) {
  const char* folder = std::getenv("WEFT_COPIES");
  if (!folder || !*folder || options.save.empty()) return {};
  const std::string run = located(options.save);
  return concat(folder, "/", xxh3_of(std::as_bytes(std::span(run))));
}

bool continues_copies(const ResumeOptions& options) {
  const std::string folder = folder_of_copies(options);
  if (folder.empty() || !std::getenv("WEFT_RESTART") || !is_directory(folder)) return false;
  return !list_checkpoints(folder).empty();
}

void RunSaver::begin_copies() {
  copies_ = folder_of_copies(options_);
  if (copies_.empty()) return;
  // Copies of an earlier run of this program are none of this run.
  if (!std::getenv("WEFT_RESTART")) remove_copies();
  copier_.emplace(world_, copies_,
                  CheckpointOptions{.keep = 1,
                                    .continues = true,
                                    .refuse_non_finite = false,
                                    .lease_seconds = options_.lease_seconds});
}

void RunSaver::remove_copies() {
  copier_.reset();
  told_by_first(world_, [&] {
    std::error_code ignored;
    std::filesystem::remove_all(copies_, ignored);
    return "";
  });
}

void RunSaver::copy() {
  used_.compare();
  check_random();
  std::string mistake;
  try {
    copier_->save(step_, state_);
  } catch (const std::runtime_error& error) {
    mistake = error.what();
  }
  if (!mistake.empty()) {
    warn("the run goes on without copies in the memory of the host: ", mistake);
  }
  if (world_.all_reduce_number(mistake.empty() ? 0 : 1, ReduceOp::max) != 0) return remove_copies();
  copier_->note_saved();
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
