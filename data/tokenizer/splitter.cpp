// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "data/tokenizer/json_part.h"
#include "data/tokenizer/unicode.h"
#include "weft/error.h"

namespace weft::text {

std::string_view Splitter::prepared(const Split& split, std::string_view piece, bool is_first,
                                    std::string& changed) {
  if (piece.empty()) return piece;
  if (!split.space.empty()) {
    changed.reserve(piece.size() + piece.size() / 2);
    append_replaced(changed, piece, " ", split.space);
    piece = changed;
  }
  const bool wanted =
      split.when == Split::Prefix::always || (split.when == Split::Prefix::first && is_first);
  if (!wanted || piece.starts_with(split.prefix)) return piece;
  changed = split.prefix + std::string(piece);
  return changed;
}

bool Splitter::joins(Split::Behavior behavior, bool is_match, bool follows_match) {
  switch (behavior) {
    case Split::Behavior::with_previous: return is_match && !follows_match;
    case Split::Behavior::with_next: return follows_match && !is_match;
    case Split::Behavior::contiguous: return is_match == follows_match;
    default: return false;
  }
}

/// Finds the first character of a class.
static Find finder_of(bool (*belongs)(char32_t)) {
  return [belongs](std::string_view text, size_t from, TextRange& match) {
    CodePoint c{};
    for (; from < text.size(); from += c.bytes) {
      c = code_point_at(text, from);
      if (!belongs(c.value)) continue;
      match = {from, from + c.bytes};
      return true;
    }
    return false;
  };
}

static Find finder_of(const std::string& part) {
  return [part](std::string_view text, size_t from, TextRange& match) {
    const size_t at = text.find(part, from);
    match = {at, at + part.size()};
    return at != text.npos;
  };
}

Find pattern_of(const JsonPart& part) {
  const JsonPart pattern = part.at("pattern");
  if (pattern.has("Regex")) {
    return Regex(concat(part.what(), ": ", pattern.place()), pattern.text("Regex"));
  }
  if (pattern.text("String").empty()) pattern.refuse("a text that is not empty");
  return finder_of(pattern.text("String"));
}

/// GPT-2's words.
static constexpr const char* kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
/// Words and punctuation, as Rust's \w+|[^\w\s]+ matches them.
static constexpr const char* kWordsOrSymbols =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}]+)"
    R"(|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}\s]+)";

static Split::Behavior behavior_of(const JsonPart& part) {
  // In the order of Split::Behavior.
  static constexpr std::string_view kNames[] = {"Removed", "Isolated", "MergedWithPrevious",
                                                "MergedWithNext", "Contiguous"};
  const auto* found = std::ranges::find(kNames, part.text("behavior"));
  if (found != std::end(kNames)) return static_cast<Split::Behavior>(found - kNames);
  part.at("behavior").refuse("Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

/// When a step puts its prefix before a text: `prepend_scheme`, or its older spelling.
static Split::Prefix prefix_of(const JsonPart& part) {
  using Prefix = Split::Prefix;
  const std::string otherwise = part.flag("add_prefix_space", true) ? "always" : "never";
  const std::string name = part.text("prepend_scheme", otherwise);
  if (name == "always") return Prefix::always;
  if (name == "first") return Prefix::first;
  if (name == "never") return Prefix::never;
  part.at("prepend_scheme").refuse("always, first or never");
}

static void add_byte_level(const JsonPart& part, Splitter& splitter) {
  if (part.flag("add_prefix_space", true))
    splitter.add({.when = Split::Prefix::always, .prefix = " "});
  if (part.flag("use_regex", true)) {
    splitter.add({.find = Regex(part.what(), kGpt2Words)});
  }
}

static Split metaspace(const JsonPart& part) {
  const std::string replacement = part.text("replacement");
  Split step{.when = prefix_of(part), .prefix = replacement, .space = replacement};
  if (part.flag("split", true)) {
    step.find = finder_of(replacement);
    step.behavior = Split::Behavior::with_next;
    if (replacement.empty()) part.at("replacement").refuse("a character");
  }
  return step;
}

bool add_pre_tokenizer(const JsonPart& part, Splitter& splitter) {
  const std::string type = part.text("type");
  check_steps(part, splitter.steps());
  if (type == "Sequence") {
    bool by_bytes = false;
    for (const JsonPart& step : part.at("pretokenizers").elements()) {
      if (by_bytes) fail(part.what(), ": ", step.place(), " comes after ByteLevel, expected none");
      by_bytes = add_pre_tokenizer(step, splitter);
    }
    return by_bytes;
  }
  if (type == "ByteLevel") {
    add_byte_level(part, splitter);
    return true;
  }
  using Behavior = Split::Behavior;
  Split step;
  if (type == "Split") {
    step = {.behavior = behavior_of(part), .inverted = part.flag("invert", false)};
    step.find = pattern_of(part);
  } else if (type == "Metaspace") {
    step = metaspace(part);
  } else if (type == "BertPreTokenizer" || type == "WhitespaceSplit") {
    step = {.find = finder_of(is_white_space), .behavior = Behavior::removed};
  } else if (type == "Whitespace") {
    step = {.find = Regex(part.what(), kWordsOrSymbols),
            .behavior = Behavior::removed,
            .inverted = true};
  } else if (type == "Punctuation") {
    step = {.find = finder_of(is_punctuation)};
    if (part.has("behavior")) step.behavior = behavior_of(part);
  } else if (type == "Digits") {
    step.find = Regex(part.what(), "\\p{N}");
    if (!part.flag("individual_digits", false)) step.behavior = Behavior::contiguous;
  } else {
    part.at("type").refuse(kKnownType);
  }
  splitter.add(std::move(step));
  if (type == "BertPreTokenizer") splitter.add({.find = finder_of(is_punctuation)});
  return false;
}

}  // namespace weft::text
