// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/unigram.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "data/tokenizer/unicode.h"

namespace weft::text {

/// How much less than the least likely piece a character without a piece scores.
static constexpr double kUnknownPenalty = 10;

static double rounded(double value) { return static_cast<float>(value); }

Unigram::Unigram(const UnigramSpec& spec)
    : unknown_(spec.unknown),
      rounds_(spec.arithmetic == UnigramSpec::Arithmetic::sentencepiece),
      bytes_(spec.bytes) {
  double least = std::numeric_limits<float>::max();
  std::vector<DoubleArray::Entry> entries;
  entries.reserve(spec.pieces.size());
  for (const auto& piece : spec.pieces) {
    entries.emplace_back(piece.text, piece.id);
    if (!piece.user_defined) least = std::min(least, piece.score);
  }
  trie_ = DoubleArray(std::move(entries));
  for (const auto& piece : spec.pieces) {
    const auto index = static_cast<size_t>(piece.id);
    if (index >= scores_.size()) scores_.resize(index + 1);
    const auto length = static_cast<float>(piece.text.size());
    scores_[index] = piece.user_defined ? 0.1f * (length - 1) : piece.score;
  }
  unknown_score_ = least - kUnknownPenalty;
  if (rounds_) unknown_score_ = rounded(unknown_score_);
}

/// Writes the ids of a path's pieces. Adjacent characters without a piece are one unknown token.
class Unigram::Path {
 public:
  Path(const Unigram& model, std::string_view text, std::vector<int32_t>& ids)
      : model_(model), text_(text), ids_(ids) {}

  /// Writes the pieces of `steps`, the last of which ends at byte `end` of the text.
  void write(const std::vector<Step>& steps, size_t end) {
    ends_.clear();
    for (size_t at = steps.size() - 1; at > 0; at -= steps[at].bytes) ends_.push_back(at);
    const size_t begin = end + 1 - steps.size();
    for (auto at = ends_.rbegin(); at != ends_.rend(); ++at) {
      const Step& step = steps[*at];
      if (step.id == model_.unknown_) {
        if (unknown_ == 0) unknown_begin_ = begin + *at - step.bytes;
        unknown_ += step.bytes;
      } else {
        finish();
        ids_.push_back(step.id);
      }
    }
  }

  /// Writes the unknown characters at the end.
  void finish() {
    if (unknown_ == 0) return;
    const std::string_view part = text_.substr(unknown_begin_, unknown_);
    unknown_ = 0;
    // Joined, they may be a piece for the package tokenizers.
    const int32_t whole = model_.rounds_ ? -1 : model_.trie_.find(part);
    const auto id_of = [&](char byte) { return model_.bytes_[static_cast<unsigned char>(byte)]; };
    if (whole >= 0) {
      ids_.push_back(whole);
    } else if (std::ranges::all_of(part, [&](char byte) { return id_of(byte) >= 0; })) {
      for (const char byte : part) ids_.push_back(id_of(byte));
    } else {
      ids_.push_back(model_.unknown_);
    }
  }

 private:
  const Unigram& model_;
  std::string_view text_;
  std::vector<int32_t>& ids_;
  std::vector<size_t> ends_;
  size_t unknown_begin_ = 0, unknown_ = 0;
};

/// Sums of single precision that have become large lose the differences between paths:
/// SentencePiece then subtracts the one at hand from those of all later places. So ties are decided
/// as it does.
void Unigram::keep_precision(std::vector<Step>& best, size_t at) {
  static constexpr double largest_sum = 100'000;
  const double sum = best[at].score;
  if (std::abs(sum) <= largest_sum) return;
  for (; at < best.size(); ++at) best[at].score = rounded(best[at].score - sum);
}

void Unigram::encode(std::string_view text, std::vector<int32_t>& ids) const {
  Path path(*this, text, ids);
  // The best paths to the places from `first` on, where the pieces before are decided.
  std::vector<Step> best(1);
  size_t first = 0;
  const auto offer = [&](size_t end, int32_t id, double score, size_t bytes) {
    if (end - first >= best.size()) best.resize(end - first + 1);
    Step& step = best[end - first];
    if (rounds_) score = rounded(score);
    if (step.bytes == 0 || score > step.score) step = {score, id, static_cast<uint32_t>(bytes)};
  };
  for (size_t begin = 0; begin < text.size();) {
    if (begin - first + 1 == best.size() && begin > first) {
      // No piece reaches beyond this place.
      path.write(best, begin);
      const double so_far = best.back().score;
      best.assign(1, {.score = so_far});
      first = begin;
    }
    if (rounds_) keep_precision(best, begin - first);
    const double so_far = best[begin - first].score;
    const size_t character = code_point_at(text, begin).bytes;
    bool has_single = false;
    uint32_t node = 0;
    for (size_t end = begin; end < text.size();) {
      node = trie_.child(node, text[end++]);
      if (node == 0) break;
      const int32_t id = trie_.number(node);
      if (id < 0) continue;
      offer(end, id, scores_[static_cast<size_t>(id)] + so_far, end - begin);
      has_single |= end - begin == character;
    }
    if (!has_single) offer(begin + character, unknown_, unknown_score_ + so_far, character);
    begin += character;
  }
  path.write(best, text.size());
  path.finish();
}

}  // namespace weft::text
