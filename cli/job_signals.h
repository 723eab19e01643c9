// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <utility>
#include <vector>

#include "weft/error.h"

namespace weft::cli {

/// Notes SIGINT, SIGTERM, SIGHUP and SIGUSR2 while a job starts its ranks again and again: they may
/// come between two starts. During a start its launch handles them. One a process.
class JobSignals : NotCopied {
 public:
  JobSignals();
  ~JobSignals();
  /// The signal that has come, or 0.
  int told() const;
  /// The same, after a wait of so many seconds that a signal ends.
  int told_within(double seconds) const;

 private:
  /// Each signal that is noted, and its action before.
  std::vector<std::pair<int, struct sigaction>> taken_;
};

}  // namespace weft::cli
