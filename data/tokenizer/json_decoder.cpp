// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <utility>

#include "data/tokenizer/json_part.h"
#include "data/unicode/unicode.h"
#include "weft/error.h"

namespace weft::text {

/// The place of a token in the text.
struct Place {
  bool is_first, is_last;
};

/// Changes the text of one token.
using TokenChange = std::function<void(std::string& text, Place place)>;

/// The most bytes of all texts that a decoder makes.
static constexpr size_t kLargestTexts = size_t{256} << 20;

/// The steps of a decoder, as far as they change single tokens.
struct TokenChanges {
  std::vector<TokenChange> steps = {};
  bool by_bytes = false, byte_fallback = false, fused = false;
  /// True when the first token of a text has a separate text.
  bool by_place = false;
  /// The last token of a text has a separate text.
  bool by_end = false;
  /// The number of steps before ByteFallback.
  size_t before_bytes = 0;
};

static void check_length(const std::string& text) {
  if (text.size() <= kLongestText) return;
  fail("tokenizer: the decoder makes a text of ", text.size(), " bytes, expected at most ",
       kLongestText, " for one token");
}

static void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::string made;
  size_t begin = 0;
  for (size_t at; (at = text.find(from, begin)) != text.npos; begin = at + from.size()) {
    made.append(text, begin, at - begin).append(to);
    check_length(made);
  }
  if (begin > 0) text = made.append(text, begin);
}

/// Removes the spaces that BERT's decoder puts before punctuation and contractions.
static void clean_up(std::string& text) {
  static constexpr std::pair<const char*, const char*> kPairs[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kPairs) replace_all(text, from, to);
}

static void add_word_piece_change(const JsonPart& part, TokenChanges& changes) {
  changes.by_place = true;
  const std::string prefix = part.text("prefix", "##");
  const bool cleans = part.flag("cleanup", true);
  changes.steps.emplace_back([prefix, cleans](std::string& text, Place place) {
    if (!place.is_first) {
      if (text.starts_with(prefix)) {
        text.erase(0, prefix.size());
      } else {
        text.insert(0, 1, ' ');
      }
    }
    if (cleans) clean_up(text);
  });
}

static void add_metaspace_change(const JsonPart& part, TokenChanges& changes) {
  const std::string replacement = character_of(part, "replacement");
  const bool prefixed = prefix_of(part) != Split::Prefix::never;
  changes.by_place |= prefixed;
  changes.steps.emplace_back([=](std::string& text, Place place) {
    replace_all(text, replacement, place.is_first && prefixed ? "" : " ");
  });
}

static void add_replacement(const JsonPart& part, TokenChanges& changes) {
  const std::string to = part.text("content");
  // The text of a run of bytes may be streamed by characters.
  if (changes.byte_fallback) character_of(part.at("pattern"), "String");
  changes.steps.emplace_back([find = pattern_of(part), to](std::string& text, Place) {
    std::string made;
    size_t begin = 0;
    for (TextRange match{}; find(text, begin, match); begin = match.end) {
      made.append(text, begin, match.begin - begin).append(to);
      check_length(made);
    }
    text = made.append(text, begin);
  });
}

/// Removes a character from the ends of a token, so many times at most.
static void add_strip(const JsonPart& part, TokenChanges& changes) {
  const std::string content = character_of(part, "content");
  const int64_t start = part.whole("start"), stop = part.whole("stop");
  changes.steps.emplace_back([=](std::string& text, Place) {
    for (int64_t i = 0; i < start && text.starts_with(content); ++i) text.erase(0, content.size());
    for (int64_t i = 0; i < stop && text.ends_with(content); ++i) {
      text.erase(text.size() - content.size());
    }
  });
}

static void add_bpe_change(const JsonPart& part, TokenChanges& changes) {
  const std::string suffix = part.text("suffix");
  if (suffix.empty()) part.at("suffix").refuse("a text that is not empty");
  changes.by_end = true;
  changes.steps.emplace_back([suffix](std::string& text, Place place) {
    replace_all(text, suffix, place.is_last ? "" : " ");
  });
}

static void add_change(const JsonPart& part, TextModel& model, TokenChanges& changes) {
  const std::string type = part.text("type");
  if (type == "Sequence") {
    for (const JsonPart& step : part.at("decoders").elements()) add_change(step, model, changes);
    return;
  }
  const bool follows_bytes = type == "Fuse" || type == "Metaspace" || type == "Replace";
  if (changes.byte_fallback && !changes.fused && !follows_bytes) {
    fail(part.what(), ": ", part.place(), " is ", type,
         " after ByteFallback, expected Fuse, Metaspace or Replace");
  }
  if (type == "Fuse") {
    changes.fused = true;
  } else if (type == "Strip" && !changes.fused) {
    add_strip(part, changes);
  } else if (type == "Strip") {
    if (part.text("content") != " " || part.whole("stop") != 0) {
      part.refuse("one that removes spaces at the start, after Fuse");
    }
    model.texts.spaces_removed += std::clamp<int64_t>(part.whole("start"), 0, INT32_MAX);
  } else if (changes.fused) {
    fail(part.what(), ": ", part.place(), " is ", type, " after Fuse, expected Strip");
  } else if (type == "ByteLevel") {
    changes.by_bytes = true;
  } else if (type == "ByteFallback") {
    if (changes.by_place || changes.by_end) {
      part.at("type").refuse("none after WordPiece, Metaspace or BPEDecoder");
    }
    changes.byte_fallback = true;
    changes.before_bytes = changes.steps.size();
  } else if (type == "BPEDecoder") {
    add_bpe_change(part, changes);
  } else if (type == "WordPiece") {
    add_word_piece_change(part, changes);
  } else if (type == "Metaspace") {
    add_metaspace_change(part, changes);
  } else if (type == "Replace") {
    add_replacement(part, changes);
  } else {
    part.at("type").refuse(kKnownType);
  }
}

/// Applies the steps from `from` to `to`.
static void change(std::string& text, const TokenChanges& changes, size_t from, size_t to,
                   Place place) {
  check_length(text);
  for (size_t step = from; step < to; ++step) {
    changes.steps[step](text, place);
    check_length(text);
  }
}

static void set_text(size_t id, const TokenChanges& changes, TextModel& model) {
  const std::string& token = model.tokens[id];
  PieceTexts& texts = model.texts;
  if (changes.by_bytes) {
    texts.following[id] = bytes_of_characters(token).value_or(token);
    return;
  }
  const auto made = [&](Place place) {
    std::string text = token;
    change(text, changes, 0, changes.before_bytes, place);
    const int byte = changes.byte_fallback ? byte_of_piece(text) : -1;
    if (byte >= 0) {
      texts.is_byte[id] = true;
      return std::string(1, static_cast<char>(byte));
    }
    change(text, changes, changes.before_bytes, changes.steps.size(), place);
    return text;
  };
  texts.following[id] = made({false, false});
  if (changes.by_place) texts.first[id] = made({true, false});
  if (changes.by_end) texts.last[id] = made({false, true});
}

void add_decoder(const JsonPart& root, TextModel& model) {
  TokenChanges changes;
  if (root.has("decoder")) {
    add_change(root.at("decoder"), model, changes);
  } else {
    changes.by_place = true;
    changes.steps.emplace_back([](std::string& text, Place place) {
      if (!place.is_first) text.insert(0, 1, ' ');
    });
  }
  if (changes.by_bytes && (!changes.steps.empty() || changes.byte_fallback)) {
    root.at("decoder").refuse("ByteLevel alone");
  }
  if (changes.by_end && changes.by_place) {
    root.at("decoder").refuse("BPEDecoder without WordPiece or Metaspace");
  }
  if (changes.steps.size() > kMostSteps) {
    fail(root.what(), ": the decoder has ", changes.steps.size(), " steps, expected at most ",
         kMostSteps);
  }
  model.texts.following.resize(model.tokens.size());
  if (changes.by_place) model.texts.first.resize(model.tokens.size());
  if (!changes.by_bytes) model.texts.is_byte.resize(model.tokens.size());
  if (changes.by_end) model.texts.last.resize(model.tokens.size());
  if (changes.byte_fallback) model.texts.broken = PieceTexts::Broken::run;
  if (changes.byte_fallback && changes.before_bytes < changes.steps.size()) {
    model.texts.changes_run = [changes](std::string& text, bool is_first) {
      for (size_t step = changes.before_bytes; step < changes.steps.size(); ++step) {
        changes.steps[step](text, {is_first, false});
      }
    };
  }
  size_t bytes = 0;
  for (size_t id = 0; id < model.tokens.size(); ++id) {
    set_text(id, changes, model);
    bytes += model.texts.following[id].size();
    if (changes.by_place) bytes += model.texts.first[id].size();
    if (changes.by_end) bytes += model.texts.last[id].size();
    if (bytes <= kLargestTexts) continue;
    fail(root.what(), ": the decoder makes texts of ", bytes, " bytes, expected at most ",
         kLargestTexts);
  }
}

}  // namespace weft::text
