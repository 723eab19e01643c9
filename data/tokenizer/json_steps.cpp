// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "data/tokenizer/json_part.h"
#include "weft/error.h"

namespace weft::text {

/// GPT-2's words.
static constexpr const char* kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
/// Words and punctuation, as Rust's \w+|[^\w\s]+ matches them.
static constexpr const char* kWordsOrSymbols =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}]+)"
    R"(|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}\s]+)";

[[noreturn]] static void refuse_type(const JsonPart& part) {
  fail(part.what(), ": ", part.place(), ".type is ", in_quotes(part.text("type")),
       ", expected one that weft reads");
}

/// Each step is a call within that of the step before it, when text is cut.
static void check_steps(const JsonPart& part, size_t steps) {
  if (steps < kMostSteps) return;
  fail(part.what(), ": ", part.place(), " is step ", steps + 1, ", expected at most ", kMostSteps,
       " steps");
}

/// A pattern of a step: a text or an expression.
static void set_pattern(const JsonPart& part, std::string& text, std::optional<Regex>& regex) {
  const JsonPart pattern = part.at("pattern");
  if (pattern.has("Regex")) {
    regex.emplace(concat(part.what(), ": ", pattern.place()), pattern.text("Regex"));
  } else {
    text = pattern.text("String");
    if (text.empty()) pattern.refuse("a text that is not empty");
  }
}

static void add_bert_normalizer(const JsonPart& part, Normalizer& normalizer) {
  using Kind = Normalization::Kind;
  const bool lowercase = part.flag("lowercase", true);
  if (part.flag("clean_text", true)) normalizer.add({.kind = Kind::clean_text});
  if (part.flag("handle_chinese_chars", true)) normalizer.add({.kind = Kind::space_chinese});
  if (part.flag("strip_accents", lowercase)) {
    normalizer.add({.kind = Kind::nfd});
    normalizer.add({.kind = Kind::strip_accents});
  }
  if (lowercase) normalizer.add({.kind = Kind::lowercase});
}

static constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The bytes that the text encodes by RFC 4648, section 4; nothing when it is not such a text.
static std::optional<std::string> bytes_of_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  for (int padding = 0; padding < 2 && text.ends_with('='); ++padding) text.remove_suffix(1);
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == kDigits.npos) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xff);
  }
  return bytes;
}

static void add_precompiled(const JsonPart& part, Normalizer& normalizer) {
  const JsonPart table = part.at("precompiled_charsmap");
  const auto bytes = bytes_of_base64(table.text());
  if (!bytes) table.refuse("a table of SentencePiece in base64");
  const std::string what = concat(part.what(), ": ", table.place());
  normalizer.add({.kind = Normalization::Kind::graphemes,
                  .replacements = std::make_shared<const Replacements>(what, *bytes)});
}

void add_normalizer(const JsonPart& part, Normalizer& normalizer) {
  using Kind = Normalization::Kind;
  const std::string type = part.text("type");
  check_steps(part, normalizer.steps());
  static constexpr std::pair<std::string_view, Kind> kPlain[] = {
      {"NFC", Kind::nfc},
      {"NFD", Kind::nfd},
      {"NFKC", Kind::nfkc},
      {"NFKD", Kind::nfkd},
      {"Lowercase", Kind::lowercase},
      {"StripAccents", Kind::strip_marks}};
  const auto* plain = std::ranges::find(kPlain, type, &std::pair<std::string_view, Kind>::first);
  if (type == "Sequence") {
    for (const JsonPart& step : part.at("normalizers").elements()) add_normalizer(step, normalizer);
  } else if (plain != std::end(kPlain)) {
    normalizer.add({.kind = plain->second});
  } else if (type == "BertNormalizer") {
    add_bert_normalizer(part, normalizer);
  } else if (type == "Precompiled") {
    add_precompiled(part, normalizer);
  } else if (type == "Prepend") {
    normalizer.add({.kind = Kind::prepend, .content = part.text("prepend")});
  } else if (type == "Strip") {
    normalizer.add({.kind = Kind::strip,
                    .left = part.flag("strip_left", true),
                    .right = part.flag("strip_right", true)});
  } else if (type == "Replace") {
    Normalization step{.kind = Kind::replace, .content = part.text("content")};
    set_pattern(part, step.pattern, step.regex);
    normalizer.add(std::move(step));
  } else {
    refuse_type(part);
  }
}

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
    splitter.add({.by = Split::By::regex, .regex = Regex(part.what(), kGpt2Words)});
  }
}

static void add_metaspace(const JsonPart& part, Splitter& splitter) {
  const std::string replacement = part.text("replacement");
  Split step{.when = prefix_of(part), .prefix = replacement, .space = replacement};
  if (part.flag("split", true)) {
    step.by = Split::By::text;
    step.behavior = Split::Behavior::with_next;
    step.text = replacement;
    if (replacement.empty()) part.at("replacement").refuse("a character");
  }
  splitter.add(std::move(step));
}

static void add_split(const JsonPart& part, Splitter& splitter) {
  Split step{.behavior = behavior_of(part), .inverted = part.flag("invert", false)};
  set_pattern(part, step.text, step.regex);
  step.by = step.regex ? Split::By::regex : Split::By::text;
  splitter.add(std::move(step));
}

/// The steps that cut by a fixed rule; returns whether `type` is one.
static bool add_fixed_split(const JsonPart& part, const std::string& type, Splitter& splitter) {
  using By = Split::By;
  using Behavior = Split::Behavior;
  if (type == "BertPreTokenizer") {
    splitter.add({.by = By::white_space, .behavior = Behavior::removed});
    splitter.add({.by = By::punctuation});
  } else if (type == "WhitespaceSplit") {
    splitter.add({.by = By::white_space, .behavior = Behavior::removed});
  } else if (type == "Whitespace") {
    splitter.add({.by = By::regex,
                  .behavior = Behavior::removed,
                  .inverted = true,
                  .regex = Regex(part.what(), kWordsOrSymbols)});
  } else if (type == "Punctuation") {
    splitter.add({.by = By::punctuation,
                  .behavior = part.has("behavior") ? behavior_of(part) : Behavior::isolated});
  } else if (type == "Digits") {
    const bool single = part.flag("individual_digits", false);
    splitter.add({.by = By::regex,
                  .behavior = single ? Behavior::isolated : Behavior::contiguous,
                  .regex = Regex(part.what(), "\\p{N}")});
  } else {
    return false;
  }
  return true;
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
  if (type == "Split") {
    add_split(part, splitter);
  } else if (type == "Metaspace") {
    add_metaspace(part, splitter);
  } else if (!add_fixed_split(part, type, splitter)) {
    refuse_type(part);
  }
  return false;
}

/// The id of a post-processor's token: ["[CLS]", 101].
static int32_t id_of_pair(const JsonPart& part, const TextModel& model) {
  const auto elements = part.elements();
  if (elements.size() != 2) part.refuse("a token and its id");
  return elements[1].id_below(model.tokens.size());
}

static void add_single(const JsonPart& part, TextModel& model) {
  bool is_after = false;
  std::vector<int32_t> before, after;
  for (const JsonPart& piece : part.at("single").elements()) {
    if (piece.has("Sequence")) {
      is_after = true;
      continue;
    }
    const std::string name = piece.at("SpecialToken").text("id");
    const JsonPart tokens = part.at("special_tokens");
    for (const JsonPart& id : tokens.at(name.c_str()).at("ids").elements()) {
      (is_after ? after : before).push_back(id.id_below(model.tokens.size()));
    }
  }
  model.before.insert(model.before.begin(), before.begin(), before.end());
  model.after.insert(model.after.end(), after.begin(), after.end());
}

void add_template(const JsonPart& part, TextModel& model) {
  const std::string type = part.text("type");
  if (type == "Sequence") {
    for (const JsonPart& step : part.at("processors").elements()) add_template(step, model);
  } else if (type == "TemplateProcessing") {
    add_single(part, model);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    model.before.insert(model.before.begin(), id_of_pair(part.at("cls"), model));
    model.after.push_back(id_of_pair(part.at("sep"), model));
  } else if (type != "ByteLevel") {
    refuse_type(part);
  }
}

}  // namespace weft::text
