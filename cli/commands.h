// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <cstdio>
#include <iterator>
#include <string>

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

/// "12 B", "3.40 GB", "56.7 TFLOP".
inline std::string readable(double amount, const char* unit) {
  static constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P", "E", "Z"};
  size_t prefix = 0;
  for (; amount >= 1000 && prefix + 1 < std::size(kPrefixes); ++prefix) amount /= 1000;
  const int digits = prefix == 0 ? 0 : amount < 10 ? 2 : 1;
  return formatted("%.*f %s%s", digits, amount, kPrefixes[prefix], unit);
}
inline std::string readable_bytes(int64_t bytes) {
  return readable(static_cast<double>(bytes), "B");
}

/// From now on a stdout or stderr whose reader is gone is an error at the end, instead of SIGPIPE
/// at once: for commands that save something.
inline void outlive_readers() { std::signal(SIGPIPE, SIG_IGN); }

}  // namespace weft::cli
