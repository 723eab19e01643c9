// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "data/tokenizer/word_model.h"
#include "data/unicode/unicode.h"

namespace weft::text {

/// A character without a piece scores this much less than the least likely piece.
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
    longest_ = std::max(longest_, piece.text.size());
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
  void write(std::span<const Step> steps, size_t end) {
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
void Unigram::keep_precision(std::span<Step> best) {
  static constexpr double largest_sum = 100'000;
  const double sum = best[0].score;
  if (std::abs(sum) <= largest_sum) return;
  for (Step& step : best) step.score = rounded(step.score - sum);
}

void Unigram::offer(Step& to, int32_t id, double score, size_t bytes) const {
  if (rounds_) score = rounded(score);
  if (to.bytes == 0 || score > to.score) to = {score, id, static_cast<uint32_t>(bytes)};
}

/// Offers the pieces at the start of `text`, whose bytes lead from steps[0] to those after it;
/// returns the bytes of the longest.
size_t Unigram::offer_pieces(std::string_view text, size_t character, Step* steps) const {
  const double so_far = steps[0].score;
  bool has_single = false;
  size_t longest = character;
  uint32_t node = 0;
  for (size_t bytes = 0; bytes < text.size();) {
    node = trie_.child(node, text[bytes++]);
    if (node == 0) break;
    const int32_t id = trie_.number(node);
    if (id < 0) continue;
    offer(steps[bytes], id, scores_[static_cast<size_t>(id)] + so_far, bytes);
    has_single |= bytes == character;
    longest = std::max(longest, bytes);
  }
  if (!has_single) offer(steps[character], unknown_, unknown_score_ + so_far, character);
  return longest;
}

void Unigram::encode(std::string_view text, std::vector<int32_t>& ids) const {
  Path path(*this, text, ids);
  // The best paths to the places from `first` on, where the pieces before are decided, as far as
  // the one at `first + reach`.
  std::vector<Step> best(std::min(text.size() + 1, 4 * longest_));
  size_t first = 0, reach = 0;
  for (size_t begin = 0; begin < text.size();) {
    size_t at = begin - first;
    if (at == reach && at > 0) {
      // No piece reaches beyond this place.
      path.write(std::span(best).first(at + 1), begin);
      const double so_far = best[at].score;
      std::fill_n(best.begin(), at + 1, Step{});
      best[0].score = so_far;
      first = begin;
      at = reach = 0;
    }
    const size_t farthest = at + std::min(longest_, text.size() - begin);
    if (best.size() <= farthest) best.resize(2 * farthest);
    if (rounds_) keep_precision(std::span(best).subspan(at, reach - at + 1));
    const size_t character = code_point_at(text, begin).bytes;
    reach = std::max(reach, at + offer_pieces(text.substr(begin), character, best.data() + at));
    begin += character;
  }
  path.write(std::span(best).first(reach + 1), text.size());
  path.finish();
}

static constexpr size_t kBlock = 256;
/// Places for children are searched in so many blocks at the end of the array, which bounds the
/// time to make it.
static constexpr size_t kSearched = 4 * kBlock;

/// A base at which the children with these labels are unused.
uint32_t DoubleArray::base_for(const std::vector<unsigned char>& labels) {
  const size_t size = nodes_.size();
  const auto is_unused = [&](size_t at) { return nodes_[at].label < 0; };
  for (size_t at = std::max(kBlock, size - std::min(size, kSearched)); at < size; ++at) {
    if (!is_unused(at)) continue;
    const size_t base = at ^ labels[0];
    if (nodes_[base].is_base) continue;
    if (std::ranges::all_of(labels, [&](size_t label) { return is_unused(base ^ label); })) {
      return static_cast<uint32_t>(base);
    }
  }
  nodes_.resize(size + kBlock);
  return static_cast<uint32_t>(size);
}

DoubleArray::DoubleArray(std::vector<Entry> entries) {
  std::ranges::stable_sort(entries, {}, &Entry::first);
  /// The entries below a node, which agree in their first `depth` bytes.
  struct Range {
    size_t begin, end, depth;
    uint32_t node;
  };
  std::vector<Range> ranges = {{0, entries.size(), 0, 0}};
  std::vector<unsigned char> labels;
  while (!ranges.empty()) {
    auto [begin, end, depth, node] = ranges.back();
    ranges.pop_back();
    for (; begin < end && entries[begin].first.size() == depth; ++begin) {
      if (depth > 0) nodes_[node].number = entries[begin].second;
    }
    if (begin == end) continue;
    const auto label_of = [&, d = depth](size_t i) {
      return static_cast<unsigned char>(entries[i].first[d]);
    };
    labels.clear();
    for (size_t i = begin; i < end; ++i) {
      if (labels.empty() || labels.back() != label_of(i)) labels.push_back(label_of(i));
    }
    const uint32_t base = base_for(labels);
    nodes_[node].base = base;
    nodes_[base].is_base = true;
    for (size_t i = begin, next; i < end; i = next) {
      const unsigned char label = label_of(i);
      for (next = i + 1; next < end && label_of(next) == label;) ++next;
      nodes_[base ^ label].label = label;
      ranges.push_back({i, next, depth + 1, base ^ label});
    }
  }
}

size_t DoubleArray::longest(std::string_view text) const {
  size_t longest = 0;
  uint32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    node = child(node, text[i]);
    if (node == 0) break;
    if (number(node) >= 0) longest = i + 1;
  }
  return longest;
}

int32_t DoubleArray::find(std::string_view text) const {
  uint32_t node = 0;
  for (const char byte : text) {
    node = child(node, byte);
    if (node == 0) return -1;
  }
  return number(node);
}

}  // namespace weft::text
