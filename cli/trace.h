// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace weft::cli {

/// Options of `weft trace`.
struct TraceOptions {
  /// Flight records, or folders of them.
  std::vector<std::string> paths;
  std::string out;
};

/// Adds the subcommand `trace` with its flags, which land in `options`.
CLI::App* add_trace(CLI::App& program, TraceOptions& options);

/// Merges the records into one file and prints what is in it. std::invalid_argument names a file
/// that is missing or malformed.
void merge_traces(const TraceOptions& options);

}  // namespace weft::cli
