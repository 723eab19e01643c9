// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>

namespace weft::tests {

/// The end of a command, and its output.
struct Outcome {
  /// The exit code; 128 plus the signal that ended it, as in shells.
  int code = -1;
  std::string text = {};
};

/// Runs a shell command. Its stderr is captured only if it is redirected (2>&1).
inline Outcome run_command(const std::string& command) {
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("no shell could be started for " + command);
  Outcome outcome;
  std::array<char, 4096> buffer;
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    outcome.text.append(buffer.data(), n);
  }
  const int status = ::pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

/// Expects that a command ended with this code and that its output has these words.
inline void expect(const Outcome& outcome, int code, const std::string& words) {
  EXPECT_EQ(outcome.code, code) << outcome.text;
  EXPECT_NE(outcome.text.find(words), std::string::npos) << "expected: " << words << "\n"
                                                         << outcome.text;
}

}  // namespace weft::tests
