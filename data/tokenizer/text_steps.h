// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

// The steps that normalize text and cut it into words.

namespace weft::text {

/// A range of bytes of a text.
struct TextRange {
  size_t begin, end;
};

/// Finds the first match that begins at byte `from` of valid UTF-8 or later and is not empty;
/// returns whether there is one.
using Find = std::function<bool(std::string_view text, size_t from, TextRange& match)>;

/// Finds a regular expression, compiled by PCRE2 with its just-in-time compiler, in valid UTF-8.
/// Several threads may search at once. std::invalid_argument, which begins with `what`, when the
/// pattern does not compile; searches beyond PCRE2's limits throw std::runtime_error.
Find regex_finder(const std::string& what, const std::string& pattern);

/// The most bytes of a token's text, however its steps change it.
inline constexpr size_t kLongestText = size_t{1} << 16;

/// Normalizes text by steps in order.
class Normalizer {
 public:
  struct Step {
    /// The changed text; std::invalid_argument when replacements make it longer than `most` bytes.
    std::function<std::string(std::string_view text, size_t most)> apply;
    /// True when the step leaves the text as it is. Null: it may change any text.
    bool (*keeps)(std::string_view text) = nullptr;
    /// True when the package tokenizers no longer takes the changed text for the start of what is
    /// encoded: the step removes its first character. Null: it never does.
    std::function<bool(std::string_view text)> moves = {};
  };

  void add(Step step) { steps_.push_back(std::move(step)); }
  size_t steps() const { return steps_.size(); }
  /// The normalized text: `text` itself or what `scratch` holds afterwards. `text` is valid UTF-8.
  /// std::invalid_argument when replacements make it more than 64 times as long. `is_first` becomes
  /// false when a step removes the start of the text.
  std::string_view apply(std::string_view text, std::string& scratch, bool& is_first) const;

 private:
  std::vector<Step> steps_;
};

/// One step that cuts text into words, a "pre-tokenizer" of tokenizer.json.
struct Split {
  /// The treatment of matches.
  enum class Behavior { removed, isolated, with_previous, with_next, contiguous };
  /// The pieces that get `prefix` before them, if they do not begin with it.
  enum class Prefix { never, first, always };

  /// Finds the matches; null: none.
  Find find = {};
  Behavior behavior = Behavior::isolated;
  /// True when the text between matches takes their role.
  bool inverted = false;
  Prefix when = Prefix::never;
  std::string prefix = {};
  /// Replaces each space, unless empty.
  std::string space = {};
  /// Each byte becomes the character that stands for it in byte-level tokens.
  bool spells_bytes = false;
};

/// Cuts text into words by steps in order.
class Splitter {
 public:
  void add(Split step) { steps_.push_back(std::move(step)); }
  size_t steps() const { return steps_.size(); }
  /// Returns whether a step after the first depends on the start of the text, which may be longer
  /// than the character that it was made of: the normalizer or a step before changes it.
  bool needs_places(bool is_changed) const;

  /// Calls `use` with each word of `text`, which is valid UTF-8. `is_first`: whether the text is
  /// the start of what is encoded.
  template <class Use> void for_words(std::string_view text, bool is_first, const Use& use) const {
    cut(0, text, is_first, use);
  }

 private:
  template <class Use>
  void cut(size_t step, std::string_view piece, bool is_first, const Use& use) const {
    if (step == steps_.size()) {
      if (!piece.empty()) use(piece);
      return;
    }
    const Split& split = steps_[step];
    std::string changed;
    if (!split.space.empty() || split.when != Split::Prefix::never || split.spells_bytes) {
      piece = prepared(split, piece, is_first, changed);
    }
    const char* start = piece.data();
    const auto next = [&](std::string_view word) {
      cut(step + 1, word, is_first && word.data() == start, use);
    };
    if (!split.find) return next(piece);
    for_pieces(split, piece, next);
  }

  /// The piece with its spaces replaced and its prefix.
  static std::string_view prepared(const Split& split, std::string_view piece, bool is_first,
                                   std::string& changed);

  /// True when a match, or the text between two, joins what comes before it.
  static bool joins(Split::Behavior behavior, bool is_match, bool follows_match);

  /// Calls `next` with the parts of the piece.
  template <class Next>
  static void for_pieces(const Split& split, std::string_view piece, const Next& next) {
    TextRange held{0, 0};
    bool held_is_match = false;
    const auto pass_on = [&] {
      if (held.begin < held.end) next(piece.substr(held.begin, held.end - held.begin));
    };
    const auto add = [&](TextRange range, bool is_match) {
      is_match = is_match != split.inverted;
      if (held.begin < held.end && joins(split.behavior, is_match, held_is_match)) {
        held.end = range.end;
      } else {
        pass_on();
        held = range;
        if (is_match && split.behavior == Split::Behavior::removed) held.end = held.begin;
      }
      held_is_match = is_match;
    };
    size_t from = 0;
    TextRange match{};
    while (from < piece.size() && split.find(piece, from, match)) {
      if (from < match.begin) add({from, match.begin}, false);
      add(match, true);
      from = match.end;
    }
    if (from < piece.size()) add({from, piece.size()}, false);
    pass_on();
  }

  std::vector<Split> steps_;
};

}  // namespace weft::text
