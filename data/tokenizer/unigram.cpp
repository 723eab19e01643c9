// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/unigram.h"

#include <algorithm>
#include <limits>

#include "data/tokenizer/unicode.h"

namespace weft::text {

/// How much less than the least likely piece a character without a piece scores.
static constexpr float kUnknownPenalty = 10;

Unigram::Unigram(const UnigramSpec& spec) : unknown_(spec.unknown), bytes_(spec.bytes) {
  float least = std::numeric_limits<float>::max(), largest = std::numeric_limits<float>::lowest();
  for (const auto& piece : spec.pieces) {
    trie_.add(piece.text, piece.id);
    const auto index = static_cast<size_t>(piece.id);
    if (index >= scores_.size()) {
      scores_.resize(index + 1);
      user_defined_.resize(index + 1);
    }
    scores_[index] = piece.score;
    user_defined_[index] = piece.user_defined;
    if (piece.user_defined) continue;
    least = std::min(least, piece.score);
    largest = std::max(largest, piece.score);
  }
  unknown_score_ = least - kUnknownPenalty;
  largest_score_ = largest;
}

/// Extends the best path to `begin` by each piece that begins there.
void Unigram::extend(std::string_view text, size_t begin, size_t character,
                     std::vector<Step>& best) const {
  const float so_far = best[begin].score;
  const auto offer = [&](size_t end, int32_t id, float score) {
    Step& step = best[end];
    if (step.begin == SIZE_MAX || score > step.score) step = {id, score, begin};
  };
  bool has_single = false;
  uint32_t node = 0;
  for (size_t end = begin; end < text.size();) {
    node = trie_.child(node, text[end++]);
    if (node == 0) break;
    const int32_t id = trie_.number(node);
    if (id < 0) continue;
    const auto index = static_cast<size_t>(id);
    const float score = user_defined_[index]
                            ? static_cast<float>(end - begin) * largest_score_ - 0.1f
                            : scores_[index];
    offer(end, id, score + so_far);
    has_single |= end - begin == character;
  }
  if (!has_single) offer(begin + character, unknown_, unknown_score_ + so_far);
}

void Unigram::append_unknown(std::string_view piece, bool after_unknown,
                             std::vector<int32_t>& ids) const {
  const auto id_of = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)]; };
  if (std::ranges::all_of(piece, [&](char byte) { return id_of(byte) >= 0; })) {
    for (const char byte : piece) ids.push_back(id_of(byte));
  } else if (!after_unknown) {
    ids.push_back(unknown_);
  }
}

void Unigram::encode(std::string_view text, std::vector<int32_t>& ids) const {
  std::vector<Step> best(text.size() + 1);
  for (size_t at = 0; at < text.size();) {
    const size_t character = code_point_at(text, at).bytes;
    extend(text, at, character, best);
    at += character;
  }
  // The path backwards: the ends of its pieces.
  std::vector<size_t> ends;
  for (size_t end = text.size(); end > 0; end = best[end].begin) ends.push_back(end);
  bool after_unknown = false;
  for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
    const Step& step = best[*end];
    const bool is_unknown = step.id == unknown_;
    if (is_unknown) {
      append_unknown(text.substr(step.begin, *end - step.begin), after_unknown, ids);
    } else {
      ids.push_back(step.id);
    }
    after_unknown = is_unknown;
  }
}

}  // namespace weft::text
