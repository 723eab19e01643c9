// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/store/client.h"
#include "weft/extend/store.h"

namespace weft::s3 {

/// Objects of an S3 bucket.
class S3Store final : public Store {
 public:
  PathKind kind(const std::string& path) override;
  std::vector<StoredName> list(const std::string& directory, std::error_code& error) override;
  std::optional<std::string> get(const std::string& path) override;
  bool put_new(const std::string& path, std::string_view text) override;
  void put(const std::string& path, std::string_view text) override;
  bool update(const std::string& path, const Edit& edit) override;
  void remove(const std::string& path) override;
  void remove_directory(const std::string& path) override;
  int64_t written(const std::string& directory) override;
  void make_directories(const std::string& path) override;
};

/// One page or more of a listing.
struct Listing {
  /// Keys and sizes.
  std::vector<std::pair<std::string, int64_t>> objects;
  /// The times of their last writes, in the format of ISO 8601.
  std::vector<std::string> times;
  /// Keys up to the delimiter, which they end with.
  std::vector<std::string> prefixes;
};
/// Keys of the bucket that begin with `prefix`, at most `most` of them; 0: all.
Listing listing_of(const std::string& bucket, const std::string& prefix, bool has_delimiter,
                   int most = 0);
/// The prefix of what is below a directory.
std::string prefix_of(const Place& directory);
std::string random_tag();

}  // namespace weft::s3
