// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/rows/documents.h"
#include "data/rows/token_index.h"

namespace weft::rows {

/// Writes token shards and their indices, with bounded memory.
class TokenWriter {
 public:
  /// `has_rows` as in IndexHeader.
  TokenWriter(std::string directory, const TokenFileOptions& options, bool has_rows);

  void add(const Document& document);
  /// The last call.
  void finish();
  int64_t tokens() const { return tokens_; }
  int64_t documents() const { return documents_; }
  int files() const { return files_; }

 private:
  void open();
  void add_token(int64_t id, bool counts);
  void flush();
  void write(const void* bytes, size_t size, int64_t offset) const;
  void close(bool is_last);

  std::string directory_, path_;
  ShardForm form_;
  int64_t most_;
  bool has_rows_;
  OwnedDescriptor descriptor_;
  int files_ = 0;
  int64_t tokens_ = 0, documents_ = 0;
  /// The shard's: ids that are not written yet, the offset that they are written at, and its index.
  std::string buffer_;
  int64_t offset_ = 0;
  IndexHeader header_;
  std::vector<int64_t> starts_;
  std::vector<uint8_t> marks_;
};

}  // namespace weft::rows
