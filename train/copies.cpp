// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <filesystem>
#include <limits>
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
  const std::string folder = folder_of_copies(options_);
  const bool has_copies = world_.all_reduce_number(!folder.empty(), ReduceOp::max) != 0;
  if (!has_copies) return;
  fail_on_all_ranks(world_, folder.empty()
                                ? concat("trainer: WEFT_COPIES is missing on rank ", world_.rank(),
                                         ", expected on all ranks or none; start all hosts with "
                                         "the same --redundancy")
                                : "");
  copies_.emplace(world_, folder);
  // Copies of an earlier run of this program are none of this run.
  const bool restarts = std::getenv("WEFT_RESTART") != nullptr;
  if (world_.all_reduce_number(restarts, ReduceOp::max) == 0) copies_->remove();
}

void RunSaver::begin_copier() {
  if (!copies_) return;
  // The copies that exist now count as this run's, also the one that came from another host.
  copier_.emplace(
      world_, copies_->folder(),
      CheckpointOptions{
          .continues = true, .refuse_non_finite = false, .lease_seconds = options_.lease_seconds});
  copier_->set_resumed_step(step_);
}

void RunSaver::remove_copies() {
  copier_.reset();
  copies_->remove();
  copies_.reset();
}

void RunSaver::copy() {
  used_.compare();
  check_random();
  // The copy before the last is not needed: no rank comes here before all have the last one.
  copies_->keep_only(last_copy_, step_);
  std::string name, mistake;
  try {
    name = std::filesystem::path(copier_->save(step_, state_)).filename();
  } catch (const std::runtime_error& error) {
    mistake = error.what();
  }
  mistake = copies_->mirror(name, mistake);
  if (!mistake.empty()) {
    if (world_.rank() == 0) {
      warn("the run goes on without copies in the memory of the host: ", mistake);
    }
    return remove_copies();
  }
  last_copy_ = name;
  copier_->note_saved();
}

static int64_t step_of(const std::string& checkpoint) {
  return checkpoint_contents(checkpoint).numbers.at("step/value");
}

/// Returns true on all ranks where the copy is whole and finite on all of them.
bool RunSaver::is_good_copy(const std::string& path) const {
  const auto report = inspect_existing(path, {.depth = Inspection::headers});
  const bool is_good = report && report->verdict == Verdict::complete && report->non_finite <= 0;
  return world_.all_reduce_number(is_good, ReduceOp::min) != 0;
}

std::string RunSaver::newest_copy(const std::set<std::string>& suspects) {
  if (!copies_) return {};
  for (const std::string& name : copies_->names()) {
    const std::string path = copies_->path(name);
    if (suspects.contains(path) || !copies_->complete(name) || !is_good_copy(path)) continue;
    const std::string newer = told_by_first(world_, [&]() -> std::string {
      const std::string saved =
          is_directory(options_.save) ? newest_complete_checkpoint(options_.save) : "";
      return !saved.empty() && step_of(saved) > step_of(path) ? saved : "";
    });
    if (newer.empty()) return path;
    return options_.resume.empty() ? newer : "";
  }
  return {};
}

void RunSaver::forget_other_copies(const std::string& resumed) {
  if (!copies_) return;
  const std::filesystem::path path(resumed);
  last_copy_ = path.parent_path() == copies_->folder() ? path.filename().string() : "";
  copies_->keep_only(last_copy_, std::numeric_limits<int64_t>::max());
}

}  // namespace weft
