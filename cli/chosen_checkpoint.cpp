// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "cli/resume.h"
#include "weft/error.h"
#include "weft/extend/told_by_first.h"

namespace weft::cli {

std::string finite_in_words(const CheckpointReport& report) {
  if (report.non_finite < 0) return "finite elements: unknown";
  if (report.non_finite == 0) return "finite elements: all";
  return concat("finite elements: all but ", report.non_finite, ", the first in tensor ",
                in_quotes(report.non_finite_tensor));
}

static void warn_if_not_finite(const std::string& path, const CheckpointReport& report) {
  if (report.non_finite <= 0) return;
  std::fprintf(stderr, "weft: warning: loading %s, %s\n", printable(path).c_str(),
               finite_in_words(report).c_str());
}

Start start_of(const ResumeOptions& options) {
  const auto& allowed = options.allow_change;
  const bool always = std::ranges::find(allowed, "start") != allowed.end();
  return always ? Start::allowed : Start::never_saved;
}

std::string complete_checkpoint(const std::string& directory, const std::set<std::string>& suspects,
                                Start start) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory, ignored))
    fail("checkpoint: ", directory, " is missing or a file, expected a directory");
  if (list_checkpoints(directory).empty()) {
    const CheckpointReport report = inspect_checkpoint(directory, {.depth = Inspection::headers});
    if (report.verdict == Verdict::complete) {
      warn_if_not_finite(directory, report);
      return directory;
    }
    if (report.verdict == Verdict::incomplete && report.ranks == 0) return {};
    fail_call("resume", directory, " is ", name_of(report.verdict), ": ", report.reason);
  }
  std::string newest, not_finite;
  CheckpointReport report_of_it;
  int passed = 0;
  bool was_saved = false;
  // A run saves again only after its save before: a second one of a run means that the first was
  // complete once. The name of the directory decides, because its files may have been purged.
  std::set<std::string> generations;
  if (start == Start::never_saved) generations.insert(noted_generation(directory));
  for (const std::string& path : list_checkpoints(directory)) {
    const auto depth = suspects.contains(path) ? Inspection::data : Inspection::headers;
    const CheckpointReport report = inspect_checkpoint(path, {.depth = depth});
    if (report.verdict == Verdict::complete && report.non_finite <= 0) return path;
    if (report.verdict == Verdict::complete && not_finite.empty()) {
      not_finite = path;
      report_of_it = report;
    }
    const std::string sentence =
        concat(path, ", which is ", name_of(report.verdict), ": ",
               report.reason.empty() ? finite_in_words(report) : report.reason);
    std::fprintf(stderr, "weft: passed over %s\n", escaped(sentence).c_str());
    if (passed++ == 0) newest = sentence;
    was_saved |= report.verdict != Verdict::incomplete ||
                 !generations.insert(path.substr(path.rfind('-') + 1)).second;
  }
  if (start == Start::allowed || (start == Start::never_saved && !was_saved)) return {};
  if (!not_finite.empty()) {
    warn_if_not_finite(not_finite, report_of_it);
    return not_finite;
  }
  fail_call("resume", "none of the ", passed, " checkpoints in ", directory,
            " is complete; passed over ", newest,
            start == Start::refused ? "" : "; --allow-change start begins at step 1");
}

std::string chosen_checkpoint(const std::string& directory, const Communicator& world,
                              const std::set<std::string>& suspects, Start start) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory, ignored)) {
    fail("--resume ", directory, " is missing or a file, expected a directory");
  }
  return told_by_first(world, [&] { return complete_checkpoint(directory, suspects, start); });
}

}  // namespace weft::cli
