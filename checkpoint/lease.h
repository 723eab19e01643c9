// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "weft/export.h"

namespace weft {

/// The right of one process to save into a directory: a file ".lease-<number>" there, which a
/// background thread renews. checkpoint/README.md has the protocol.
class Lease : NotCopied {
 public:
  /// Names the directory; `take` takes its lease.
  Lease(const std::string& directory, std::chrono::milliseconds lifetime);
  /// Releases it.
  ~Lease();

  /// Returns true when the lease is taken. Returns false, after a pause of at most 100 ms, while
  /// another job may hold it, with a warning the first time. std::invalid_argument naming the
  /// holder when it is alive; std::runtime_error when the directory cannot hold a lease.
  bool take();
  /// Notes that all ranks' files of a checkpoint of that generation are written.
  void note_saved(const std::string& generation);
  /// std::runtime_error when another process has taken the lease over, or it was removed.
  void check() const;

 private:
  struct Renewal;
  bool claim(int64_t number);
  void renew();
  void keep_alive();
  bool write(int descriptor);

  const std::string directory_;
  const std::chrono::milliseconds lifetime_;
  const std::string tag_;
  /// The process that took the lease: a forked child does not release it.
  const int pid_;
  /// 0 until it is taken.
  int64_t number_ = 0;
  int64_t count_ = 0;
  bool is_ending_ = false;
  std::string saved_;
  /// The lease of another job that is watched: its number, its text, and since when.
  int64_t watched_ = -1;
  std::string seen_;
  std::chrono::steady_clock::time_point since_;
  std::unique_ptr<Renewal> renewal_;
};

}  // namespace weft
