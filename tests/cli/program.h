// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace weft::tests {

struct Outcome {
  /// -1 when a signal ended it.
  int code = -1;
  std::string text = {};
};

/// Runs a command of the shell.
inline Outcome run_command(const std::string& command) {
  FILE* pipe = ::popen(command.c_str(), "r");
  Outcome outcome;
  std::array<char, 4096> buffer;
  while (size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    outcome.text.append(buffer.data(), n);
  }
  const int status = ::pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

/// Runs the program with those arguments, errors and output together. `variables` are set for it:
/// "NAME=1 ".
inline Outcome run_weft(const std::string& arguments, const std::string& variables = "") {
  return run_command(variables + std::string(WEFT_PROGRAM) + " " + arguments + " 2>&1");
}

}  // namespace weft::tests
