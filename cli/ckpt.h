// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>

#include "cli/commands.h"
#include "weft/error.h"

namespace weft::cli {

/// Options of `weft ckpt`.
struct CkptOptions {
  std::string path, other;
  /// Ranks to write for, or threads that read and write.
  int ranks = 0;
  std::string prefix = "model/";
  double tolerance = 0;
  int64_t file_gigabytes = 5;
  bool is_dcp = false;
  bool headers_only = false;
  /// The `export` command merges adapters into the model of `base`.
  bool merge = false;
  std::string base = {};
};

// Each command returns the exit code. It throws std::invalid_argument for errors that the user can
// fix, other exceptions for failures.

int list_checkpoint(const CkptOptions& options);
int verify_checkpoint(const CkptOptions& options);
int compare_checkpoints(const CkptOptions& options);
int reshard_checkpoint(const CkptOptions& options);
int export_checkpoint(const CkptOptions& options);
int import_checkpoint(const CkptOptions& options);

/// Tells on stderr how far some work is, twice a second; several threads may report.
class CkptProgress {
 public:
  explicit CkptProgress(std::string what, int64_t all = 0) : what_(std::move(what)), all_(all) {}

  /// Sets the bytes done and those in all, where one thread reports at a time.
  void set(int64_t done, int64_t all) {
    all_ = all;
    add(done - done_);
  }
  void add(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    done_ += bytes;
    const auto now = Clock::now();
    if (now - shown_ < std::chrono::milliseconds(500) || !::isatty(STDERR_FILENO)) return;
    shown_ = now;
    std::fprintf(stderr, "\r%s: %s of %s, %.2f GB/s ", what_.c_str(), readable_bytes(done_).c_str(),
                 readable_bytes(all_).c_str(), gigabytes_per(now - started_));
  }

  /// Ends the line; "3.40 GB in 1.20 s, 2.83 GB/s".
  std::string finish() {
    const std::lock_guard lock(mutex_);
    if (shown_ != started_) std::fprintf(stderr, "\n");
    const Seconds took = Clock::now() - started_;
    return formatted("%s in %.2f s, %.2f GB/s", readable_bytes(done_).c_str(), took.count(),
                     gigabytes_per(took));
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  double gigabytes_per(Seconds time) const {
    return static_cast<double>(done_) / time.count() / 1e9;
  }

  std::string what_;
  int64_t all_, done_ = 0;
  std::mutex mutex_;
  Clock::time_point started_ = Clock::now(), shown_ = started_;
};

}  // namespace weft::cli
