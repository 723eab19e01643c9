// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "weft/error.h"
#include "weft/launch.h"

namespace weft::cli {

/// A folder in the memory of this host where ranks keep copies of their state (WEFT_COPIES). It
/// outlives them, and ends with the launcher; folders of launchers that were killed are removed.
class HostCopies : NotCopied {
 public:
  HostCopies();
  ~HostCopies();
  const std::string& folder() const { return folder_; }
  /// True if a copy has been made since the last call.
  bool has_news();

 private:
  std::string folder_, newest_;
};

/// The numbers of ranks that a job may have.
struct RankBounds {
  int least = 0, most = 0;
};
/// Reads "2:4". std::invalid_argument.
RankBounds rank_bounds(const std::string& text);

/// The number of ranks that a job should have: a file that `weft resize` changes.
class ElasticRanks : NotCopied {
 public:
  ElasticRanks(RankBounds bounds, int ranks);
  ~ElasticRanks();
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
