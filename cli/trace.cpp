// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "cli/numbers.h"
#include "weft/error.h"
#include "weft/extend/flight.h"
#include "weft/extend/run_folder.h"

namespace weft::cli {

namespace fs = std::filesystem;

namespace {

/// Options of `weft trace`.
struct TraceOptions {
  /// Flight records, or folders of them.
  std::vector<std::string> paths;
  std::string out;
};

}  // namespace

static std::vector<std::string> records_of(const std::vector<std::string>& paths) {
  std::vector<std::string> records;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      records.push_back(path);
      continue;
    }
    const size_t before = records.size();
    for (const auto& entry : fs::directory_iterator(path, error)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with("rank-") || !name.ends_with(".json")) continue;
      records.push_back(entry.path().string());
    }
    if (error) fail("trace: ", path, ": ", error.message());
    if (records.size() == before)
      fail("trace: ", path, " holds no flight record, expected files rank-<r>.json");
    std::sort(records.begin() + static_cast<std::ptrdiff_t>(before), records.end());
  }
  return records;
}

/// Merges the records into one file and prints what is in it. std::invalid_argument names a file
/// that is missing or malformed.
static void merge_traces(const TraceOptions& o) {
  const std::vector<std::string> records = records_of(o.paths);
  for (const std::string& record : records) {
    if (located(record) != located(o.out)) continue;
    fail("--out ", o.out, " is also one of the records, expected another file");
  }
  set_aside("--out", o.out);
  const FlightSummary summary = merge_flight_records(records, o.out);
  print(records.size(), records.size() == 1 ? " rank, " : " ranks, ", summary.operations,
        " operations, ", summary.unfinished, " of them unfinished, over ");
  std::printf("%.6f s: %s\n", summary.seconds, printable(o.out).c_str());
  if (summary.missing.empty()) return;
  print("no record of rank ", listed(summary.missing), '\n');
}

void add_trace(CLI::App& program) {
  const auto options = std::make_shared<TraceOptions>();
  TraceOptions& o = *options;
  CLI::App* trace = program.add_subcommand(
      "trace", "Merge the flight records of ranks into a Chrome or Perfetto trace");
  trace->footer(
      "A rank writes its last 1,024 collectives to the folder that WEFT_FLIGHT names (weft run "
      "sets\n"
      "it) when the job fails, and at SIGUSR1. Open the result in https://ui.perfetto.dev.\n"
      "Example: weft trace /tmp/weft-flight-0-1234-5678 -o trace.json");
  add_named(*trace, "records", o.paths, "PATH...", "Records, rank-<r>.json, or folders of them")
      ->required();
  add_named(*trace, "-o,--out", o.out, "FILE", "The trace to write")->required();
  trace->callback([options] { merge_traces(*options); });
}

}  // namespace weft::cli
