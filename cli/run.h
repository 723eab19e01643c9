// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace weft::cli {

/// Options of `weft run`.
struct LaunchedProgram {
  int ranks = 0;
  double timeout = 0;
  bool no_prefix = false;
  /// The program and its arguments.
  std::vector<std::string> command;
};

/// Adds the subcommand `run` with its flags, which land in `options`; what follows them is the
/// program.
CLI::App* add_run(CLI::App& program, LaunchedProgram& options);

/// Of `weft run ... -- program arguments`: cuts what follows the "--" off and returns it, the "--"
/// first. Of other commands nothing.
std::vector<std::string> cut_program(int& argc, char** argv);

/// The program that `run` was given: what its flags leave over and what was cut off.
std::vector<std::string> launched_command(const CLI::App& run,
                                          const std::vector<std::string>& cut_off);

/// Starts the processes and returns the exit code when all have ended; a failure's cause is printed
/// to stderr.
int run_program(const LaunchedProgram& options);

}  // namespace weft::cli
