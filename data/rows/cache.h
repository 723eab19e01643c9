// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/extend/token_files.h"

namespace weft::rows {

/// A folder of token files; one without a cache is removed at the end.
class TokenFolder {
 public:
  TokenFolder(std::string path, bool is_kept) : path_(std::move(path)), is_kept_(is_kept) {}
  TokenFolder(const TokenFolder&) = delete;
  TokenFolder& operator=(const TokenFolder&) = delete;
  ~TokenFolder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool is_kept_;
};

/// The token files of text or lines of JSON: those that `cache` has of files of this content and of
/// these options, where they are whole, or else new ones. Processes that ask for the same wait for
/// the first. Without a cache the files are in the system's folder for temporary ones.
std::shared_ptr<const TokenFolder> tokenized(std::span<const std::string> files,
                                             const TokenFileOptions& options,
                                             const std::string& cache);

}  // namespace weft::rows
