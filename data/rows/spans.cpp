// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>

#include "data/rows/documents.h"

namespace weft::rows {

using Ids = std::vector<int64_t>;
using Spans = std::vector<std::pair<size_t, size_t>>;

static bool is_character_start(std::string_view text, size_t at) {
  return at == text.size() || (text[at] & 0xc0) != 0x80;
}

/// The number of tokens of the first `bytes` bytes, if a token ends there.
static std::optional<size_t> tokens_before(const Tokenizer& tokenizer, std::string_view text,
                                           const Ids& ids, size_t bytes) {
  if (!is_character_start(text, bytes)) return {};
  const Ids part = tokenizer.encode(text.substr(0, bytes), false);
  if (part.size() > ids.size() || !std::equal(part.begin(), part.end(), ids.begin())) return {};
  return part.size();
}

/// The tokens before each of the bytes `cuts`, if the text's parts between them have its tokens.
static std::optional<std::vector<size_t>> tokens_of_parts(const Tokenizer& tokenizer,
                                                          std::string_view text, const Ids& ids,
                                                          const std::vector<size_t>& cuts) {
  Ids all;
  std::vector<size_t> found;
  size_t from = 0;
  for (size_t i = 0; i <= cuts.size(); ++i) {
    const size_t to = i < cuts.size() ? cuts[i] : text.size();
    const Ids part = tokenizer.encode(text.substr(from, to - from), false);
    all.insert(all.end(), part.begin(), part.end());
    if (i < cuts.size()) found.push_back(all.size());
    from = to;
  }
  if (all != ids) return {};
  return found;
}

/// The tokens before the nearest end of a token at or before byte `at`, or at or after it.
static size_t nearest(const Tokenizer& tokenizer, std::string_view text, const Ids& ids, size_t at,
                      bool is_before) {
  for (size_t place = at; place > 0 && place < text.size(); is_before ? --place : ++place) {
    if (const auto found = tokens_before(tokenizer, text, ids, place)) return *found;
  }
  return is_before ? 0 : ids.size();
}

std::vector<uint8_t> marked(const Tokenizer& tokenizer, std::string_view text, const Ids& ids,
                            const Spans& spans) {
  std::vector<uint8_t> marks(ids.size());
  std::vector<size_t> cuts;
  for (const auto& [begin, end] : spans) cuts.insert(cuts.end(), {begin, end});
  const auto parts = tokens_of_parts(tokenizer, text, ids, cuts);
  for (size_t i = 0; i < spans.size(); ++i) {
    const auto& [begin, end] = spans[i];
    if (begin == end) continue;
    const size_t first = parts ? (*parts)[2 * i] : nearest(tokenizer, text, ids, begin, true);
    const size_t last = parts ? (*parts)[2 * i + 1] : nearest(tokenizer, text, ids, end, false);
    std::fill(marks.begin() + static_cast<ptrdiff_t>(first),
              marks.begin() + static_cast<ptrdiff_t>(last), uint8_t{1});
  }
  return marks;
}

}  // namespace weft::rows
