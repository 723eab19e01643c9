// SPDX-License-Identifier: Apache-2.0
#include "weft/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <mutex>

#include "data/tokenizer/chat.h"
#include "data/tokenizer/piece_decoder.h"
#include "data/tokenizer/text_model.h"
#include "data/unicode/unicode.h"
#include "weft/error.h"
#include "weft/extend/file.h"
#include "weft/extend/hash.h"

namespace weft {

namespace fs = std::filesystem;
using text::TextModel;

namespace text {

void set_token(const std::string& what, TextModel& model, const std::string& token, int64_t id) {
  if (id < 0 || id >= kMostTokens) {
    fail(what, ": the id of ", in_quotes(token), " is ", id, ", expected 0 to ", kMostTokens - 1);
  }
  const auto index = static_cast<size_t>(id);
  if (index >= model.tokens.size()) {
    model.tokens.resize(index + 1);
    model.special.resize(index + 1);
  }
  model.tokens[index] = token;
  model.ids.insert_or_assign(token, static_cast<int32_t>(id));
}

}  // namespace text

/// The caches that no thread is using.
struct WordCaches {
  std::mutex mutex;
  std::vector<std::unique_ptr<text::WordCache>> unused;

  std::unique_ptr<text::WordCache> take() {
    const std::lock_guard lock(mutex);
    if (unused.empty()) return std::make_unique<text::WordCache>();
    auto cache = std::move(unused.back());
    unused.pop_back();
    return cache;
  }
  void put_back(std::unique_ptr<text::WordCache> cache) {
    const std::lock_guard lock(mutex);
    unused.push_back(std::move(cache));
  }
};

/// Appends the ids of a text; `cache` may be null.
static void encode_text(const TextModel& model, std::string_view whole, text::WordCache* cache,
                        std::vector<int32_t>& ids) {
  std::string normalized;
  const auto add = [&](int32_t id) { ids.push_back(id); };
  const auto encode_word = [&](std::string_view word) {
    cache ? cache->encode(*model.words, word, ids) : model.words->encode(word, ids);
  };
  const auto encode_part = [&](std::string_view part) {
    bool is_first = part.data() == whole.data();
    const std::string_view normal = model.normalizer.apply(part, normalized, is_first);
    const auto encode_piece = [&](std::string_view piece) {
      model.splitter.for_words(piece, is_first && piece.data() == normal.data(), encode_word);
    };
    model.added_normalized.for_parts(normal, encode_piece, add);
  };
  model.added.for_parts(whole, encode_part, add);
}

static std::optional<int64_t> id_of_name(const TextModel& model, const std::string& token) {
  const auto found = model.ids.find(token);
  return token.empty() || found == model.ids.end() ? std::nullopt
                                                   : std::optional<int64_t>(found->second);
}

struct Tokenizer::Body {
  std::shared_ptr<const TextModel> model;
  std::shared_ptr<WordCaches> caches = std::make_shared<WordCaches>();
  /// The path that it was read from.
  std::string source;
  std::optional<int64_t> bos, eos;
  /// The ids that end a text by generation_config.json, and all that do.
  std::vector<int64_t> generation_ends, end_ids;
  /// The tokens that templates know by their names, and the templates of the model.
  std::vector<std::pair<std::string, std::string>> named_tokens, templates;
  text::Chat chat;
  /// Hashes of the file of the model, and of the text of the chat template.
  uint64_t file_digest = 0, chat_digest = 0;

  void set_chat(const text::NamedTemplate& from) {
    chat = text::read_chat(from);
    chat_digest = xxh3_of(std::as_bytes(std::span(from.text)));
    end_ids = generation_ends;
    if (eos) end_ids.push_back(*eos);
    if (const auto id = end_of_turn()) end_ids.push_back(*id);
    std::ranges::sort(end_ids);
    end_ids.erase(std::unique(end_ids.begin(), end_ids.end()), end_ids.end());
  }
  /// The added token that the template writes after an answer.
  std::optional<int64_t> end_of_turn() const {
    const std::string after = text::after_answer(chat, named_tokens);
    std::optional<int64_t> found;
    for (const text::AddedTokens* added : {&model->added, &model->added_normalized}) {
      bool is_start = true;
      added->for_parts(
          after, [&](std::string_view) { is_start = false; },
          [&](int64_t id) {
            if (std::exchange(is_start, false)) found = id;
          });
    }
    return found;
  }
  /// The text of a template by its name, or nothing.
  const std::string* template_text(std::string_view name) const {
    const auto found =
        std::ranges::find(templates, name, [](const auto& row) { return row.first; });
    return found == templates.end() ? nullptr : &found->second;
  }
  using Spans = std::vector<std::pair<size_t, size_t>>;
  std::string render(const text::Chat& from, const jinja::Value& messages, const jinja::Named& more,
                     const std::string& date, Spans* generated = nullptr) const {
    if (!from.form) {
      if (from.error.empty()) {
        fail("chat: ", source, " has no chat template, expected one of chat_templates(); ",
             "choose one by its name (--chat-template)");
      }
      fail("chat: the template of ", source, " is not one that weft reads, expected another one; ",
           from.error);
    }
    jinja::Named variables = text::chat_variables(messages, named_tokens, more);
    if (generated) return from.form->render(std::move(variables), *generated);
    return from.form->render(std::move(variables), {.date = date});
  }
};

bool Tokenizer::is_in(const std::string& directory) {
  std::error_code ignored;
  return fs::exists(fs::path(directory) / "tokenizer.json", ignored) ||
         fs::exists(fs::path(directory) / "tokenizer.model", ignored);
}

static uint64_t digest_of_file(const std::string& path) {
  const std::string bytes = read_file("tokenizer", path);
  return xxh3_of(std::as_bytes(std::span(bytes)));
}

Tokenizer Tokenizer::from_directory(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored))
    fail("tokenizer: ", path, " is missing, expected a directory");
  if (!is_in(path)) {
    fail("tokenizer: ", path, " has no tokenizer, expected tokenizer.json or tokenizer.model");
  }
  const fs::path json = fs::path(path) / "tokenizer.json";
  const bool has_json = fs::exists(json, ignored);
  const text::TokenizerConfig config = text::read_tokenizer_config(path);
  TextModel model =
      has_json ? text::read_tokenizer_json("tokenizer", json.string())
               : text::read_sentencepiece(
                     "tokenizer", (fs::path(path) / "tokenizer.model").string(), config.added);
  auto body = std::make_shared<Body>();
  body->bos = id_of_name(model, config.token("bos_token"));
  body->eos = id_of_name(model, config.token("eos_token"));
  const auto add = [&](bool wanted, std::optional<int64_t> id, std::vector<int32_t>& ids) {
    if (wanted && id && !has_json) ids.push_back(static_cast<int32_t>(*id));
  };
  add(config.adds_bos, body->bos, model.before);
  add(config.adds_eos, body->eos, model.after);
  body->model = std::make_shared<const TextModel>(std::move(model));
  body->file_digest =
      digest_of_file(has_json ? json.string() : (fs::path(path) / "tokenizer.model").string());
  body->generation_ends = config.ends;
  body->source = path;
  body->named_tokens = config.named;
  body->templates = config.chat_templates;
  const std::string* main = body->template_text("default");
  body->set_chat(main ? text::NamedTemplate{"default", *main} : text::NamedTemplate{});
  return Tokenizer(std::move(body));
}

Tokenizer Tokenizer::from_file(const std::string& path) {
  auto body = std::make_shared<Body>();
  body->model = std::make_shared<const TextModel>(
      path.ends_with(".json") ? text::read_tokenizer_json("tokenizer", path)
                              : text::read_sentencepiece("tokenizer", path, {}));
  body->file_digest = digest_of_file(path);
  body->source = path;
  return Tokenizer(std::move(body));
}

std::vector<int64_t> Tokenizer::encode(std::string_view text, bool add_special) const {
  const TextModel& model = *body_->model;
  std::string valid;
  if (text::valid_prefix(text) != text.size()) {
    valid = text::repaired(text);
    text = valid;
  }
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + model.before.size() + model.after.size());
  if (add_special) ids = model.before;
  auto cache = model.caches ? body_->caches->take() : nullptr;
  encode_text(model, text, cache.get(), ids);
  if (cache) body_->caches->put_back(std::move(cache));
  if (add_special) ids.insert(ids.end(), model.after.begin(), model.after.end());
  return {ids.begin(), ids.end()};
}

/// Passes the token on, unless it is skipped or the id has none.
static void push_token(const TextModel& model, text::PieceDecoder& decoder, int64_t id,
                       bool skip_special, std::string& to) {
  const auto size = static_cast<int64_t>(model.tokens.size());
  if (id < 0 || id >= size) fail("decode: the id is ", id, ", expected 0 to ", size - 1);
  const auto index = static_cast<size_t>(id);
  if (model.tokens[index].empty() || (skip_special && model.special[index])) return;
  decoder.push(id, to);
}

std::string Tokenizer::decode(std::span<const int64_t> ids, bool skip_special) const {
  text::PieceDecoder decoder(body_->model->texts, false);
  std::string to;
  for (const int64_t id : ids) push_token(*body_->model, decoder, id, skip_special, to);
  decoder.finish(to);
  return to;
}

int64_t Tokenizer::size() const { return static_cast<int64_t>(body_->model->tokens.size()); }

std::string Tokenizer::token(int64_t id) const {
  if (id < 0 || id >= size()) fail("token: the id is ", id, ", expected 0 to ", size() - 1);
  return body_->model->tokens[static_cast<size_t>(id)];
}

std::optional<int64_t> Tokenizer::id(std::string_view token) const {
  return id_of_name(*body_->model, std::string(token));
}

bool Tokenizer::is_special(int64_t id) const {
  return id >= 0 && id < size() && body_->model->special[static_cast<size_t>(id)];
}

std::optional<int64_t> Tokenizer::bos() const { return body_->bos; }
std::optional<int64_t> Tokenizer::eos() const { return body_->eos; }
const std::vector<int64_t>& Tokenizer::end_ids() const { return body_->end_ids; }

std::string Tokenizer::chat(std::span<const ChatMessage> messages,
                            const ChatOptions& options) const {
  return body_->render(body_->chat, text::messages_of(messages), text::variables_of(options),
                       text::repaired(options.date));
}

std::string Tokenizer::apply_chat_template(const std::string& messages,
                                           const std::string& variables) const {
  std::vector<std::pair<size_t, size_t>> ignored;
  return apply_chat_template(messages, variables, ignored);
}

std::string Tokenizer::apply_chat_template(
    const std::string& messages, const std::string& variables,
    std::vector<std::pair<size_t, size_t>>& generated) const {
  const jinja::Value more = jinja::value_of_json("chat: the variables", variables);
  const jinja::Dict* dict = more.to<jinja::Dict>();
  if (!dict) fail("chat: the variables are a ", jinja::type_name(more), ", expected an object");
  jinja::Named named;
  for (const auto& [name, value] : dict->items) named.emplace_back(*name.text(), value);
  const jinja::Value* tools = dict->find("tools");
  const std::string* for_tools = body_->template_text("tool_use");
  const bool uses_tools = tools && !tools->is_none() && for_tools && body_->chat.name == "default";
  return body_->render(uses_tools ? text::read_chat({"tool_use", *for_tools}) : body_->chat,
                       jinja::value_of_json("chat: the messages", messages), named, "", &generated);
}

uint64_t Tokenizer::digest() const {
  uint64_t made = mixed(body_->file_digest, body_->chat_digest);
  for (const auto& [name, token] : body_->named_tokens) {
    const std::string named = name + '\0' + token;
    made = xxh3_of(std::as_bytes(std::span(named)), made);
  }
  for (const auto* ids : {&body_->model->before, &body_->model->after}) {
    made = xxh3_of(std::as_bytes(std::span(*ids)), made);
  }
  return mixed(made, static_cast<uint64_t>(eos().value_or(-1)));
}

const std::string& Tokenizer::chat_template() const { return body_->chat.name; }

std::vector<std::string> Tokenizer::chat_templates() {
  std::vector<std::string> names;
  for (const text::NamedTemplate& one : text::named_templates()) names.push_back(one.name);
  return names;
}

Tokenizer Tokenizer::with_chat_template(const std::string& name) const {
  const auto& known = text::named_templates();
  const auto found = std::ranges::find(known, name, &text::NamedTemplate::name);
  const std::string* own = body_->template_text(name);
  const bool is_text = name.find('{') != name.npos;
  if (found == known.end() && !own && !is_text) {
    fail("chat: the template is ", in_quotes(name), ", expected one of ", listed(chat_templates()));
  }
  auto body = std::make_shared<Body>(*body_);
  body->set_chat(own       ? text::NamedTemplate{name, *own}
                 : is_text ? text::NamedTemplate{"given", name}
                           : *found);
  if (!body->chat.form) fail(body->chat.error);
  return Tokenizer(std::move(body));
}

struct TextStream::Body {
  std::shared_ptr<const TextModel> model;
  text::PieceDecoder decoder;
  bool skip_special;
};

TextStream::TextStream(const Tokenizer& tokenizer, bool skip_special)
    : body_(new Body{tokenizer.body_->model,
                     text::PieceDecoder(tokenizer.body_->model->texts, true), skip_special}) {}
TextStream::TextStream(TextStream&&) noexcept = default;
TextStream& TextStream::operator=(TextStream&&) noexcept = default;
TextStream::~TextStream() = default;

std::string TextStream::push(int64_t id) {
  std::string to;
  push_token(*body_->model, body_->decoder, id, body_->skip_special, to);
  return to;
}

std::string TextStream::finish() {
  std::string to;
  body_->decoder.finish(to);
  return to;
}

}  // namespace weft
