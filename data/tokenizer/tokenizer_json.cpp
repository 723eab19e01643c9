// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "data/tokenizer/json_part.h"
#include "data/tokenizer/piece_normalizer.h"
#include "data/unicode/unicode.h"
#include "weft/error.h"
#include "weft/extend/file.h"

namespace weft::text {

void JsonPart::refuse(std::string_view expected) const {
  const bool is_long = value_->is_structured();
  const std::string actual = value_->is_string() ? in_quotes(value_->get_ref<const std::string&>())
                             : is_long           ? concat("an ", value_->type_name())
                                                 : value_->dump();
  fail(what_, ": ", place_, " is ", actual, ", expected ", expected);
}

bool JsonPart::has(const char* key) const {
  if (!value_->is_object()) refuse("an object");
  const auto found = value_->find(key);
  return found != value_->end() && !found->is_null();
}

JsonPart JsonPart::at(const char* key) const {
  const std::string place = place_.empty() ? key : concat(place_, '.', key);
  if (!has(key)) fail(what_, ": ", place, " is missing, expected a value");
  return {what_, place, *value_->find(key)};
}

std::vector<JsonPart> JsonPart::elements() const {
  if (!value_->is_array()) refuse("an array");
  std::vector<JsonPart> parts;
  parts.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i) {
    parts.emplace_back(what_, concat(place_, '[', i, ']'), (*value_)[i]);
  }
  return parts;
}

const std::string& JsonPart::text() const {
  if (!value_->is_string()) refuse("a string");
  return value_->get_ref<const std::string&>();
}

std::string JsonPart::text(const char* key, const std::string& otherwise) const {
  return has(key) ? text(key) : otherwise;
}

bool JsonPart::flag(const char* key, bool otherwise) const {
  if (!has(key)) return otherwise;
  const JsonPart part = at(key);
  if (!part.value_->is_boolean()) part.refuse("true or false");
  return part.value_->get<bool>();
}

int64_t JsonPart::whole() const {
  if (!value_->is_number_integer() ||
      (value_->is_number_unsigned() && value_->get<uint64_t>() > uint64_t{INT64_MAX})) {
    refuse("a whole number");
  }
  return value_->get<int64_t>();
}

int32_t JsonPart::id_below(size_t tokens) const {
  const int64_t id = whole();
  if (id < 0 || id >= static_cast<int64_t>(tokens)) refuse("an id of the vocabulary");
  return static_cast<int32_t>(id);
}

void check_steps(const JsonPart& part, size_t steps) {
  // Each step is a call within that of the step before it, when text is cut.
  if (steps < kMostSteps) return;
  fail(part.what(), ": ", part.place(), " is step ", steps + 1, ", expected at most ", kMostSteps,
       " steps");
}

AddedToken added_token(const JsonPart& part) {
  return {.content = part.text("content"),
          .special = part.flag("special", false),
          .single_word = part.flag("single_word", false),
          .left = part.flag("lstrip", false),
          .right = part.flag("rstrip", false)};
}

/// Reads the tokens and their ids into the model, and returns them.
static const Vocabulary& vocabulary_of(const JsonPart& part, TextModel& model) {
  if (!part.value().is_object()) part.refuse("an object of tokens and their ids");
  for (const auto& [token, id] : part.value().items()) {
    const JsonPart value(part.what(), concat("the id of ", in_quotes(token)), id);
    set_token(part.what(), model, token, value.whole());
  }
  return model.ids;
}

/// The two pieces of each merge: "a b" or ["a", "b"].
static std::vector<std::pair<std::string, std::string>> merges_of(const JsonPart& part) {
  if (!part.value().is_array()) part.refuse("an array of merges");
  std::vector<std::pair<std::string, std::string>> merges;
  merges.reserve(part.value().size());
  for (const auto& merge : part.value()) {
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      if (space != text.npos && text.find(' ', space + 1) == text.npos) {
        merges.emplace_back(text.substr(0, space), text.substr(space + 1));
        continue;
      }
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    JsonPart(part.what(), concat(part.place(), '[', merges.size(), ']'), merge)
        .refuse("two pieces");
  }
  return merges;
}

/// Replaces the characters of pieces by the bytes that they stand for; a piece with a character
/// that stands for none is an added token and part of no word.
static void turn_into_bytes(BpeSpec& spec) {
  Vocabulary vocabulary;
  vocabulary.reserve(spec.vocabulary.size());
  for (const auto& [piece, id] : spec.vocabulary) {
    if (auto bytes = bytes_of_characters(piece)) vocabulary.emplace(std::move(*bytes), id);
  }
  spec.vocabulary = std::move(vocabulary);
  for (auto& [left, right] : spec.merges) {
    left = bytes_of_characters(left).value_or(left);
    right = bytes_of_characters(right).value_or(right);
  }
}

static void refuse_if_set(const JsonPart& part, const char* key) {
  if (!part.has(key)) return;
  const auto& value = part.at(key).value();
  const bool is_nothing = (value.is_string() && value.get_ref<const std::string&>().empty()) ||
                          (value.is_number() && value.get<double>() == 0);
  if (!is_nothing) part.at(key).refuse("nothing");
}

static void read_bpe(const JsonPart& part, bool by_bytes, TextModel& model) {
  refuse_if_set(part, "dropout");
  BpeSpec spec{.vocabulary = vocabulary_of(part.at("vocab"), model),
               .merges = merges_of(part.at("merges")),
               .by_bytes = by_bytes,
               .byte_fallback = part.flag("byte_fallback", false),
               .unknown = {},
               .fuse_unknown = part.flag("fuse_unk", false),
               .ignore_merges = part.flag("ignore_merges", false),
               .prefix = part.text("continuing_subword_prefix", ""),
               .suffix = part.text("end_of_word_suffix", "")};
  if (part.has("unk_token")) spec.unknown = part.text("unk_token");
  if (by_bytes) turn_into_bytes(spec);
  const bool cuts = !by_bytes && !spec.ignore_merges && spec.prefix.empty() &&
                    spec.suffix.empty() && merges_keep_spaces_first(spec);
  model.words = std::make_unique<Bpe>(part.what(), std::move(spec));
  if (!cuts) return;
  // A text without other words is one word, which no cache holds.
  model.splitter.add({.find = regex_finder(part.what(), kPiecesFromSpaces)});
}

static void read_word_piece(const JsonPart& part, TextModel& model) {
  const Vocabulary& vocabulary = vocabulary_of(part.at("vocab"), model);
  const int64_t most =
      part.has("max_input_chars_per_word") ? part.whole("max_input_chars_per_word") : 100;
  if (most < 0) part.at("max_input_chars_per_word").refuse("at least 0");
  model.words = std::make_unique<WordPiece>(
      part.what(), vocabulary, part.text("unk_token", "[UNK]"),
      part.text("continuing_subword_prefix", "##"), static_cast<size_t>(most));
}

/// The value that serde_json, by which the package tokenizers reads files, has for a number in its
/// fewest digits: it divides the digits by a power of ten, and so rounds twice. The last bit
/// decides between paths whose scores are equal. (A file may have more digits.)
static double read_by_serde(double value) {
  char text[32];
  const char* end =
      std::to_chars(text, std::end(text), std::abs(value), std::chars_format::scientific).ptr;
  const char* mark = std::find<const char*>(text, end, 'e');
  uint64_t digits = 0;
  int exponent = 0;
  std::from_chars(mark + (mark[1] == '+' ? 2 : 1), end, exponent);
  for (const char* at = text; at != mark; ++at) {
    if (*at == '.') {
      exponent -= static_cast<int>(mark - at) - 1;
    } else {
      digits = 10 * digits + static_cast<uint64_t>(*at - '0');
    }
  }
  const auto whole = static_cast<double>(digits);
  const double power = std::pow(10.0, std::abs(exponent));
  return std::copysign(exponent < 0 ? whole / power : whole * power, value);
}

static void read_unigram(const JsonPart& part, TextModel& model) {
  UnigramSpec spec{.arithmetic = UnigramSpec::Arithmetic::tokenizers};
  const JsonPart vocabulary = part.at("vocab");
  if (!vocabulary.value().is_array()) vocabulary.refuse("an array of pieces and their scores");
  for (const auto& pair : vocabulary.value()) {
    const size_t id = spec.pieces.size();
    const bool is_piece =
        pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_number();
    if (!is_piece) {
      JsonPart(part.what(), concat(vocabulary.place(), '[', id, ']'), pair)
          .refuse("a piece and its score");
    }
    const auto& text = pair[0].get_ref<const std::string&>();
    set_token(part.what(), model, text, static_cast<int64_t>(id));
    spec.pieces.push_back({text, static_cast<int32_t>(id), read_by_serde(pair[1].get<double>())});
  }
  spec.unknown = part.at("unk_id").id_below(spec.pieces.size());
  if (part.flag("byte_fallback", false)) spec.bytes = ids_of_bytes(model.ids);
  model.words = std::make_unique<Unigram>(spec);
}

/// The kind of a model whose file does not name it.
static std::string kind_of(const JsonPart& part) {
  if (part.has("merges")) return "BPE";
  return part.has("vocab") && part.at("vocab").value().is_array() ? "Unigram" : "WordPiece";
}

static void read_model(const JsonPart& part, bool by_bytes, TextModel& model) {
  const std::string type = part.text("type", kind_of(part));
  const bool changes_pieces = part.flag("byte_fallback", false) ||
                              !part.text("continuing_subword_prefix", "").empty() ||
                              !part.text("end_of_word_suffix", "").empty();
  if (by_bytes && (type != "BPE" || changes_pieces)) {
    model.splitter.add({.spells_bytes = true});
    by_bytes = false;
  }
  if (type == "BPE") return read_bpe(part, by_bytes, model);
  if (type == "WordPiece") return read_word_piece(part, model);
  if (type == "Unigram") return read_unigram(part, model);
  part.at("type").refuse("BPE, WordPiece or Unigram");
}

static void read_added(const JsonPart& part, TextModel& model) {
  std::vector<AddedToken> plain, normalized;
  for (const JsonPart& entry : part.elements()) {
    AddedToken token = added_token(entry);
    const bool is_normalized = entry.flag("normalized", false);
    // A token of the vocabulary keeps its id there, whatever the entry says.
    const auto known = model.ids.find(token.content);
    const int64_t given = entry.whole("id");
    const int64_t id = known != model.ids.end() ? known->second : given;
    set_token(part.what(), model, token.content, id);
    token.id = static_cast<int32_t>(id);
    model.special[static_cast<size_t>(id)] = token.special;
    if (is_normalized) {
      std::string scratch;
      bool is_first = false;
      token.content = std::string(model.normalizer.apply(token.content, scratch, is_first));
      if (token.content.size() > std::max(kLongestPiece, entry.text("content").size())) {
        fail(part.what(), ": ", entry.place(), " has ", token.content.size(),
             " bytes normalized, expected at most ", kLongestPiece);
      }
      model.tokens[static_cast<size_t>(id)] = token.content;
    }
    (is_normalized ? normalized : plain).push_back(std::move(token));
  }
  model.added = AddedTokens(std::move(plain));
  model.added_normalized = AddedTokens(std::move(normalized));
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
  const JsonPart single = part.at("single");
  for (const JsonPart& piece : single.elements()) {
    if (piece.has("Sequence")) {
      if (is_after || piece.at("Sequence").text("id") != "A") single.refuse("the text A once");
      is_after = true;
      continue;
    }
    const std::string name = piece.at("SpecialToken").text("id");
    const JsonPart tokens = part.at("special_tokens");
    for (const JsonPart& id : tokens.at(name.c_str()).at("ids").elements()) {
      (is_after ? after : before).push_back(id.id_below(model.tokens.size()));
    }
  }
  if (!is_after) single.refuse("the text A once");
  model.before.insert(model.before.begin(), before.begin(), before.end());
  model.after.insert(model.after.end(), after.begin(), after.end());
}

static void add_template(const JsonPart& part, TextModel& model) {
  const std::string type = part.text("type");
  const bool is_wrapped = !model.before.empty() || !model.after.empty();
  if (is_wrapped && type.ends_with("Processing")) {
    part.at("type").refuse("one step that adds tokens");
  }
  if (type == "Sequence") {
    for (const JsonPart& step : part.at("processors").elements()) add_template(step, model);
  } else if (type == "TemplateProcessing") {
    add_single(part, model);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    model.before.insert(model.before.begin(), id_of_pair(part.at("cls"), model));
    model.after.push_back(id_of_pair(part.at("sep"), model));
  } else if (type != "ByteLevel") {
    part.at("type").refuse(kKnownType);
  }
}

TextModel read_tokenizer_json(const std::string& what, const std::string& path) {
  const std::string source = concat(what, ": ", path);
  const auto json = nlohmann::json::parse(read_json(what, path));
  const JsonPart root(source, "", json);
  TextModel model;
  if (root.has("normalizer")) add_normalizer(root.at("normalizer"), model.normalizer);
  const bool by_bytes =
      root.has("pre_tokenizer") && add_pre_tokenizer(root.at("pre_tokenizer"), model.splitter);
  if (model.splitter.needs_places(model.normalizer.steps() > 0)) {
    root.at("pre_tokenizer").refuse("no Metaspace \"first\" after steps that change the text");
  }
  read_model(root.at("model"), by_bytes, model);
  if (root.has("added_tokens")) read_added(root.at("added_tokens"), model);
  if (root.has("post_processor")) add_template(root.at("post_processor"), model);
  add_decoder(root, model);
  return model;
}

}  // namespace weft::text
