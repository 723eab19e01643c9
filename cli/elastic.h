// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "weft/error.h"
#include "weft/launch.h"

namespace weft::cli {

/// A folder of a job in the memory of this host. It outlives the ranks and ends with the launcher;
/// folders of launchers that were killed are removed.
class JobFolder : NotCopied {
 public:
  JobFolder();
  ~JobFolder();
  const std::string& path() const { return path_; }
  /// Returns the folder in which ranks keep copies of their state (WEFT_COPIES).
  std::string copies() const { return path_ + "/copies"; }
  /// True if a copy has been made since the last call.
  bool has_news();

 private:
  /// False where another process removes the folder.
  bool take();

  std::string path_, newest_;
  /// Locked as long as the launcher lives.
  int descriptor_ = -1;
};

/// The numbers of ranks that a job may have.
struct RankBounds {
  int least = 0, most = 0;
};
/// Reads "2:4". std::invalid_argument.
RankBounds rank_bounds(const std::string& text);

/// The number of ranks that a job should have: a file in its folder that `weft resize` changes.
class ElasticRanks : NotCopied {
 public:
  ElasticRanks(const JobFolder& folder, RankBounds bounds, int ranks);
  int ranks() const { return ranks_; }
  /// True when another number is wanted than the job has.
  bool is_changed() const;
  /// Sets the number for the next start: the one that was asked for, else one less after a rank
  /// died or left. Returns false when that is below the bound and the rank left on purpose.
  bool take(const LaunchReport& report);

 private:
  RankBounds bounds_;
  int ranks_;
  std::string file_;
};

/// Asks the launcher, a process of this user, for another number of ranks. std::invalid_argument
/// when it is no elastic job, or the number is out of its bounds.
void resize_job(int launcher, int ranks);

}  // namespace weft::cli
