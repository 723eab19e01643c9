// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/rows/documents.h"
#include "weft/extend/file.h"

namespace weft::rows {

/// A part of a file that is tokenised alone: lines of JSON, or a block of text that ends where a
/// token does.
struct Piece {
  std::string path;
  DataKind kind = DataKind::text;
  std::string bytes;
  /// Text before the block, which the tokenizer reads first: its tokens are dropped.
  std::string lead;
  bool is_first = true, is_last = true;
  /// The number of the first line.
  int64_t line = 1;
};

/// Cuts files into pieces of about `block` bytes. Lines, and text without a place at which it is
/// cut, have at most `longest` bytes.
class PieceCutter {
 public:
  PieceCutter(std::span<const std::string> files, const Tokenizer& tokenizer,
              int64_t block = int64_t{1} << 20, int64_t longest = int64_t{1} << 30);
  /// The next piece; none at the end.
  std::optional<Piece> next();

 private:
  /// The largest place in `window` at which text is cut, at most `most`; 0: none.
  size_t cut_in(std::string_view window, size_t most) const;
  Piece cut();

  std::vector<std::string> files_;
  Tokenizer tokenizer_;
  int64_t block_, longest_;
  size_t number_ = 0;
  std::optional<File> file_;
  int64_t offset_ = 0, line_ = 1;
  std::string lead_;
};

/// The documents of a piece; those of a text may be a part of one.
std::vector<Document> documents_of(const Piece& piece, const DocumentReader& reader);

}  // namespace weft::rows
