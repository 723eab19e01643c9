// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <compare>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "weft/export.h"
#include "weft/extend/file.h"

// A run has a directory to itself, and recognizes the checkpoints there that are its own.

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
  /// The same by what the last renewal saw: no request is made unless that failed.
  void check_last_seen() const;

 private:
  struct Renewal;
  bool claim(int64_t number);
  /// Writes `next` to its file.
  void renew(const std::string& next);
  void keep_alive();
  /// Returns the text that its file holds next.
  std::string text();

  const std::string directory_;
  const std::chrono::milliseconds lifetime_;
  const std::string tag_;
  /// The process that took the lease: a forked child does not release it.
  const int pid_;
  /// 0 until it is taken.
  int64_t number_ = 0;
  int64_t count_ = 0;
  bool is_ending_ = false, is_due_ = false;
  std::atomic<bool> is_lost_ = false;
  std::string saved_;
  /// The lease of another job that is watched: its number, its text, and since when.
  int64_t watched_ = -1;
  std::string seen_;
  std::chrono::steady_clock::time_point since_;
  std::unique_ptr<Renewal> renewal_;
};

/// The checkpoints that a run may count and remove.
struct OwnCheckpoints {
  std::string generation;
  /// Generations of the runs that this run resumed from, and the last step that it took from them.
  /// Their checkpoints of later steps do not count: this run passed over them, even if their
  /// headers are sound.
  std::set<std::string> earlier;
  int64_t resumed_step = -1;
};

/// Considers the checkpoints `own` of `directory` whose step is below `step`. Removes those of a
/// lower step than the `keep` newest complete ones that count, complete or not; removes nothing
/// while fewer count.
/// What is kept is made to survive a crash first. std::runtime_error naming the first that could
/// not be removed, after the others are.
void retain_newest(const std::string& directory, int64_t step, int keep, const OwnCheckpoints& own);
/// Counts checkpoints whose removal was interrupted among the earlier ones: they are not listed.
void add_hidden(const std::string& directory, OwnCheckpoints& own);

/// A directory that has the name of a checkpoint, and the step and the generation of that name.
struct NamedCheckpoint {
  std::string path;
  int64_t step = 0;
  std::string generation = {};
  auto operator<=>(const NamedCheckpoint&) const = default;
};
std::vector<NamedCheckpoint> named_checkpoints(const std::string& directory);
/// Newest first: by the step that their files state, then by when they were written.
std::vector<NamedCheckpoint> sorted_checkpoints(const std::string& directory);
/// std::runtime_error when the directory holds a complete checkpoint of `step` or above that is
/// neither of `generation` nor in `known`.
void check_no_newer_run(const std::string& directory, int64_t step, const std::string& generation,
                        const std::set<std::string>& known);

}  // namespace weft
