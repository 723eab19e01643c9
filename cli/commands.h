// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <cstdio>

#include "weft/error.h"

namespace CLI {
class App;
}

namespace weft::cli {

// Each function adds a subcommand with its flags. Parsing a command line that names it runs it and
// throws what went wrong; `code` becomes the exit code, which is 0 of commands without it.

void add_train(CLI::App& program, int& code);
void add_estimate(CLI::App& program);
void add_ckpt(CLI::App& program, int& code);
void add_sample(CLI::App& program);
void add_tokenize(CLI::App& program);
void add_trace(CLI::App& program);
/// Cuts "-- program arguments" off the command line `weft run ... -- program arguments`.
void add_run(CLI::App& program, int& argc, char** argv, int& code);

/// Writes all parts to stdout.
template <class... Parts> void print(const Parts&... parts) {
  const std::string text = concat(parts...);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

/// From now on a stdout or stderr whose reader is gone is an error at the end, instead of SIGPIPE
/// at once: for commands that save something.
inline void outlive_readers() { std::signal(SIGPIPE, SIG_IGN); }

}  // namespace weft::cli
