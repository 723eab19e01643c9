// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <string>
#include <vector>

#include "weft/checkpoint.h"
#include "weft/checkpoint_report.h"
#include "weft/error.h"
#include "weft/extend/run_folder.h"

namespace weft {

std::string finite_in_words(const CheckpointReport& report) {
  if (report.non_finite < 0) return "finite elements: unknown";
  if (report.non_finite == 0) return "finite elements: all";
  return concat("finite elements: all but ", report.non_finite, ", the first in tensor ",
                in_quotes(report.non_finite_tensor));
}

static void warn_if_not_finite(const std::string& path, const CheckpointReport& report) {
  if (report.non_finite <= 0) return;
  warn("warning: loading ", printable(path), ", ", finite_in_words(report));
}

static std::string found_checkpoint(const std::string& directory,
                                    const std::set<std::string>& suspects, Start start,
                                    const std::string& cure) {
  const std::vector<std::string> listed = list_checkpoints(directory);
  if (listed.empty()) {
    const CheckpointReport report = inspect_checkpoint(directory, {.depth = Inspection::headers});
    if (report.verdict == Verdict::complete) {
      warn_if_not_finite(directory, report);
      return directory;
    }
    if (report.verdict == Verdict::incomplete && report.ranks == 0) return {};
    fail_call("resume", directory, " is ", name_of(report.verdict), ": ", report.reason);
  }
  // `not_finite` is loaded where none better is found: those from it on were not passed over then.
  std::string not_finite;
  CheckpointReport report_of_it;
  std::vector<std::string> passed_over;
  size_t before_it = 0;
  bool was_saved = false, was_removed = false;
  const auto warn_of = [&](size_t count) {
    for (size_t i = 0; i < count; ++i) warn("passed over ", passed_over[i]);
  };
  // A run saves again only after its save before: a second one of a run means that the first was
  // complete once. The name of the directory decides, because its files may have been purged.
  std::set<std::string> generations;
  if (start == Start::never_saved) generations.insert(noted_generation(directory));
  for (const std::string& path : listed) {
    const auto depth = suspects.contains(path) ? Inspection::data : Inspection::headers;
    const auto existing = inspect_existing(path, {.depth = depth});
    was_removed |= !existing;
    if (!existing) continue;
    const CheckpointReport& report = *existing;
    const bool is_complete = report.verdict == Verdict::complete;
    if (is_complete && report.non_finite <= 0) {
      warn_of(passed_over.size());
      return path;
    }
    if (is_complete && not_finite.empty()) {
      not_finite = path;
      report_of_it = report;
      before_it = passed_over.size();
    }
    passed_over.push_back(concat(path, ", which is ", name_of(report.verdict), ": ",
                                 report.reason.empty() ? finite_in_words(report) : report.reason));
    was_saved |= report.verdict != Verdict::incomplete ||
                 !generations.insert(path.substr(path.rfind('-') + 1)).second;
  }
  if (!not_finite.empty()) {
    warn_of(before_it);
    warn_if_not_finite(not_finite, report_of_it);
    return not_finite;
  }
  // A run removes one only for a newer one.
  if (was_removed) return found_checkpoint(directory, suspects, start, cure);
  warn_of(passed_over.size());
  if (start == Start::allowed || (start == Start::never_saved && !was_saved)) return {};
  fail_call("resume", "none of the ", passed_over.size(), " checkpoints in ", directory,
            " is complete; passed over ", passed_over[0],
            start == Start::refused ? "" : concat("; ", cure, " begins at step 1"));
}

std::string complete_checkpoint(const std::string& directory, const std::set<std::string>& suspects,
                                Start start, const std::string& cure) {
  check_directory("checkpoint:", directory);
  return found_checkpoint(directory, suspects, start, cure);
}

std::string chosen_checkpoint(const std::string& what, const std::string& directory,
                              const Communicator& world, const std::set<std::string>& suspects,
                              Start start, const std::string& cure) {
  check_directory(what, directory);
  return told_by_first(world,
                       [&] { return complete_checkpoint(directory, suspects, start, cure); });
}

void check_same(const Communicator& world, const char* verb, const std::string& own) {
  if (launched_ranks() == 1) return;
  const std::string first = world.broadcast(own, 0);
  const bool is_same = first == own;
  fail_on_all_ranks(
      world,
      is_same ? "" : concat("rank ", world.rank(), ' ', verb, ' ', own, " but rank 0 ", first));
}

}  // namespace weft
