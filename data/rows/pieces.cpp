// SPDX-License-Identifier: Apache-2.0
#include "data/rows/pieces.h"

#include <algorithm>

#include "weft/error.h"

namespace weft::rows {

/// Text on both sides of a place that decides whether a token ends there.
static constexpr size_t kNear = 256;

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// The text before `at`, at most kNear bytes of whole characters.
static std::string_view before(std::string_view text, size_t at) {
  size_t from = at > kNear ? at - kNear : 0;
  while (from < at && (text[from] & 0xc0) == 0x80) ++from;
  return text.substr(from, at - from);
}

static bool starts_with(const std::vector<int64_t>& all, const std::vector<int64_t>& part) {
  return all.size() >= part.size() && std::equal(part.begin(), part.end(), all.begin());
}

PieceCutter::PieceCutter(std::span<const std::string> files, const Tokenizer& tokenizer,
                         int64_t block, int64_t longest)
    : files_(files.begin(), files.end()), tokenizer_(tokenizer), block_(block), longest_(longest) {}

size_t PieceCutter::cut_in(std::string_view window, size_t most) const {
  int tries = 64;
  for (size_t at = most; at > 1 && tries > 0; --at) {
    // Cuts after the end of a line, where pre-tokenizers end a word.
    if (window[at - 1] != '\n' || is_blank(window[at]) || is_blank(window[at - 2])) continue;
    --tries;
    const std::string_view left = before(window, at);
    std::string_view right = window.substr(at, kNear);
    while (!right.empty() && (right.back() & 0x80)) right.remove_suffix(1);
    const std::string both = std::string(left) + std::string(right);
    if (starts_with(tokenizer_.encode(both, false), tokenizer_.encode(left, false))) return at;
  }
  return 0;
}

Piece PieceCutter::cut() {
  const std::string& path = files_[number_];
  const DataKind kind = data_kind(path);
  Piece piece{path, kind, {}, lead_, offset_ == 0, true, line_};
  for (int64_t most = block_;; most *= 2) {
    const int64_t rest = file_->size() - offset_;
    if (most > longest_) {
      fail("data: ", path, " has ", kind == DataKind::lines ? "a line" : "text without lines",
           " of more than ", longest_, " bytes from byte ", offset_, " on, expected shorter ones");
    }
    const int64_t wanted = std::min(rest, most + static_cast<int64_t>(kNear));
    piece.bytes = file_->text(offset_, wanted);
    if (wanted == rest) break;
    const auto end = static_cast<size_t>(most);
    const size_t at =
        kind == DataKind::lines ? piece.bytes.rfind('\n', end) + 1 : cut_in(piece.bytes, end);
    if (at == 0) continue;
    piece.bytes.resize(at);
    piece.is_last = false;
    break;
  }
  offset_ += std::ssize(piece.bytes);
  if (kind == DataKind::lines) {
    line_ += std::ranges::count(piece.bytes, '\n');
  } else {
    lead_ = before(piece.bytes, piece.bytes.size());
  }
  return piece;
}

std::optional<Piece> PieceCutter::next() {
  if (number_ == files_.size()) return {};
  if (!file_) file_ = opened_text(files_[number_]);
  Piece piece = cut();
  if (piece.is_last) {
    file_.reset();
    ++number_;
    offset_ = 0;
    line_ = 1;
    lead_.clear();
  }
  return piece;
}

static Document document_of_block(const Piece& piece, const DocumentReader& reader) {
  Document made;
  made.continues = !piece.is_first;
  const Tokenizer& tokenizer = reader.tokenizer();
  made.ids = tokenizer.encode(piece.lead + piece.bytes, false);
  if (!piece.lead.empty()) {
    const std::vector<int64_t> lead = tokenizer.encode(piece.lead, false);
    if (!starts_with(made.ids, lead)) {
      fail("data: ", piece.path, " cannot be cut into blocks, expected a tokenizer whose tokens ",
           "depend on the text near them; cut the file");
    }
    made.ids.erase(made.ids.begin(), made.ids.begin() + std::ssize(lead));
  }
  if (piece.is_first) reader.begin(made.ids);
  if (piece.is_last) reader.end(made.ids);
  return made;
}

std::vector<Document> documents_of(const Piece& piece, const DocumentReader& reader) {
  std::vector<Document> made;
  if (piece.kind == DataKind::text) {
    made.push_back(document_of_block(piece, reader));
    return made;
  }
  int64_t number = piece.line;
  for (size_t begin = 0, end; begin < piece.bytes.size(); begin = end + 1, ++number) {
    end = std::min(piece.bytes.find('\n', begin), piece.bytes.size());
    const std::string line = piece.bytes.substr(begin, end - begin);
    if (std::ranges::all_of(line, is_blank)) continue;
    made.push_back(reader.line(line, concat(piece.path, ": line ", number)));
  }
  return made;
}

}  // namespace weft::rows
