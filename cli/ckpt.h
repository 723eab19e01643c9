// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "weft/checkpoint.h"

namespace weft::cli {

/// Options of `weft ckpt`.
struct CkptOptions {
  std::string path, other;
  /// Ranks to write for, or threads that read and write.
  int ranks = 0;
  std::string prefix = "model/";
  double tolerance = 0;
  int64_t file_gigabytes = 5;
  bool headers_only = false;
};

// Each command returns the exit code. It throws std::invalid_argument for errors that the user can
// fix, other exceptions for failures.

int list_checkpoint(const CkptOptions& options);
int verify_checkpoint(const CkptOptions& options);
int compare_checkpoints(const CkptOptions& options);
int reshard_checkpoint(const CkptOptions& options);
int export_checkpoint(const CkptOptions& options);
int import_checkpoint(const CkptOptions& options);

/// One checkpoint: what was named, or the newest complete one of a run's directory.
std::string one_checkpoint(const std::string& path);

/// Tells on stderr what `contents` cannot say for sure.
void print_note(const std::string& path, const CheckpointContents& contents);

int64_t bytes_of(const CheckpointContents::Entry& entry);
/// Memory for a tensor, cut along its first dim over all ranks.
Tensor empty_for(const CheckpointContents::Entry& entry, const DeviceMesh& mesh);

/// "12 B", "3.4 GB".
std::string readable_bytes(int64_t bytes);

/// Tells on stderr how far some work is, twice a second; several threads may report.
class CkptProgress {
 public:
  CkptProgress(std::string what, int64_t all);
  void add(int64_t bytes);
  /// Ends the line; "3.4 GB in 1.2 s, 2.8 GB/s".
  std::string finish();

 private:
  std::string what_;
  int64_t all_, done_ = 0;
  std::mutex mutex_;
  std::chrono::steady_clock::time_point started_, shown_;
};

}  // namespace weft::cli
