// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "weft/communicator.h"

namespace weft {

/// The folders in which the hosts of a job keep copies of a run, each one seen by the ranks of its
/// host only. The file of each rank is kept on its host and, where there are several, on the next
/// one. One a rank; calls are collective.
class HostCopies {
 public:
  /// `folder` is that of this rank; ranks of one folder are ranks of one host.
  /// std::invalid_argument when hosts have unequal numbers of ranks.
  HostCopies(const Communicator& world, std::string folder);

  const std::string& folder() const { return folder_; }
  std::string path(const std::string& name) const { return folder_ + '/' + name; }

  /// Sends this rank's file of the copy `name` to the next host and keeps that of a rank of the
  /// host before. Returns the mistake of this rank or of another, or "". Each rank gives `mistake`,
  /// what went wrong before; nothing is sent then.
  std::string mirror(const std::string& name, const std::string& mistake);
  /// Returns the names of the copies whose files all exist on some host, newest first.
  std::vector<std::string> names() const;
  /// Completes the copy `name` in each host's folder. Returns false where a host has no memory for
  /// that, with a warning.
  bool complete(const std::string& name);
  /// Removes all copies but `name` whose step is below `step`: other ranks may write that one.
  void keep_only(const std::string& name, int64_t step);
  /// Removes the folders.
  void remove();

 private:
  /// A file on its way from one rank to another.
  struct Parcel {
    std::string path;
    int64_t bytes = 0;
    int rank = -1;
  };
  /// File names of each copy, and their sizes.
  using Files = std::map<std::string, std::map<std::string, int64_t>>;

  /// Sends one file and receives another under a name that readers pass over.
  void exchange(const Parcel& sent, const Parcel& received, std::string& mistake) const;
  /// Returns the first mistake of a rank, on all ranks.
  std::string agreed(const std::string& mistake) const;
  Files files_here() const;
  std::vector<Files> files_of_hosts() const;
  bool is_first() const { return local_ == 0; }

  Communicator world_;
  std::string folder_;
  /// The ranks of each host, in order.
  std::vector<std::vector<int>> hosts_;
  /// This rank's host, and its place there.
  int host_ = 0, local_ = 0;
};

}  // namespace weft
