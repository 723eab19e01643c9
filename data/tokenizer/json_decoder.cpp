// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <utility>

#include "data/tokenizer/json_part.h"
#include "data/unicode/unicode.h"
#include "weft/error.h"

namespace weft::text {

/// Changes the text of one token; `is_first`: it begins the text.
using TokenChange = std::function<void(std::string& text, bool is_first)>;

/// The most bytes of all texts that a decoder makes.
static constexpr size_t kLargestTexts = size_t{256} << 20;

/// The steps of a decoder, as far as they change single tokens.
struct TokenChanges {
  std::vector<TokenChange> steps = {};
  bool by_bytes = false, byte_fallback = false, fused = false;
  /// Whether the first token of a text has a separate text.
  bool by_place = false;
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
  changes.steps.emplace_back([prefix, cleans](std::string& text, bool is_first) {
    if (!is_first) {
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
  const std::string replacement = part.text("replacement");
  if (replacement.empty()) part.at("replacement").refuse("a character");
  const bool prefixed = prefix_of(part) != Split::Prefix::never;
  changes.by_place |= prefixed;
  changes.steps.emplace_back([=](std::string& text, bool is_first) {
    replace_all(text, replacement, is_first && prefixed ? "" : " ");
  });
}

static void add_change(const JsonPart& part, TextModel& model, TokenChanges& changes) {
  const std::string type = part.text("type");
  if (type == "Sequence") {
    for (const JsonPart& step : part.at("decoders").elements()) add_change(step, model, changes);
    return;
  }
  if (changes.byte_fallback && type != "Fuse" && type != "Strip") {
    fail(part.what(), ": ", part.place(), " is ", type,
         " after ByteFallback, expected Fuse or Strip");
  }
  if (type == "Fuse") {
    changes.fused = true;
  } else if (type == "Strip") {
    if (!changes.fused || part.text("content") != " " || part.whole("stop") != 0) {
      part.refuse("one that removes spaces at the start, after Fuse");
    }
    model.texts.spaces_removed = part.whole("start");
  } else if (changes.fused) {
    fail(part.what(), ": ", part.place(), " is ", type, " after Fuse, expected Strip");
  } else if (type == "ByteLevel") {
    changes.by_bytes = true;
  } else if (type == "ByteFallback") {
    changes.byte_fallback = true;
  } else if (type == "WordPiece") {
    add_word_piece_change(part, changes);
  } else if (type == "Metaspace") {
    add_metaspace_change(part, changes);
  } else if (type == "Replace") {
    const std::string from = part.at("pattern").text("String"), to = part.text("content");
    if (from.empty()) part.at("pattern").refuse("a text that is not empty");
    changes.steps.emplace_back([=](std::string& text, bool) { replace_all(text, from, to); });
  } else {
    part.at("type").refuse(kKnownType);
  }
}

static void set_text(size_t id, const TokenChanges& changes, TextModel& model) {
  const std::string& token = model.tokens[id];
  PieceTexts& texts = model.texts;
  if (changes.by_bytes) {
    texts.following[id] = bytes_of_characters(token).value_or(token);
    return;
  }
  const int byte = changes.byte_fallback ? byte_of_piece(token) : -1;
  if (byte >= 0) {
    texts.is_byte[id] = true;
    texts.following[id] = std::string(1, static_cast<char>(byte));
    if (changes.by_place) texts.first[id] = texts.following[id];
    return;
  }
  for (const bool is_first : {false, true}) {
    if (is_first && !changes.by_place) break;
    std::string text = token;
    check_length(text);
    for (const TokenChange& change : changes.steps) {
      change(text, is_first);
      check_length(text);
    }
    (is_first ? texts.first : texts.following)[id] = std::move(text);
  }
}

void add_decoder(const JsonPart& root, TextModel& model) {
  TokenChanges changes;
  if (root.has("decoder")) {
    add_change(root.at("decoder"), model, changes);
  } else {
    changes.by_place = true;
    changes.steps.emplace_back([](std::string& text, bool is_first) {
      if (!is_first) text.insert(0, 1, ' ');
    });
  }
  if (changes.by_bytes && (!changes.steps.empty() || changes.byte_fallback)) {
    root.at("decoder").refuse("ByteLevel alone");
  }
  if (changes.steps.size() > kMostSteps) {
    fail(root.what(), ": the decoder has ", changes.steps.size(), " steps, expected at most ",
         kMostSteps);
  }
  model.texts.following.resize(model.tokens.size());
  if (changes.by_place) model.texts.first.resize(model.tokens.size());
  if (!changes.by_bytes) model.texts.is_byte.resize(model.tokens.size());
  if (changes.byte_fallback) model.texts.broken = PieceTexts::Broken::run;
  size_t bytes = 0;
  for (size_t id = 0; id < model.tokens.size(); ++id) {
    set_text(id, changes, model);
    bytes +=
        model.texts.following[id].size() + (changes.by_place ? model.texts.first[id].size() : 0);
    if (bytes <= kLargestTexts) continue;
    fail(root.what(), ": the decoder makes texts of ", bytes, " bytes, expected at most ",
         kLargestTexts);
  }
}

}  // namespace weft::text
