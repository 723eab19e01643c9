// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/export.h"

namespace weft {

/// One message of a conversation; `role` is "system", "user" or "assistant".
struct ChatMessage {
  std::string role;
  std::string content;
  bool operator==(const ChatMessage&) const = default;
};

struct ChatOptions {
  /// True when the text ends with the start of the assistant's answer.
  bool generation_prompt = true;
  /// The date that a template names: its variable date_string, and what its strftime_now returns.
  /// Empty: what the template has without one, such as the date of today.
  std::string date = {};
  /// False: the model answers without thinking, where its template has the variable enable_thinking
  /// or thinking, as those of Qwen 3 and SmolLM 3.
  bool thinking = true;
};

/// Turns text into token ids and back, as a model's files describe it: byte-level and character
/// BPE, WordPiece and Unigram from a tokenizer.json of Hugging Face, BPE and Unigram from a
/// tokenizer.model of SentencePiece. Ids and texts equal those of the packages `tokenizers` and
/// `sentencepiece`; a truncation and padding of the file are not applied. A value handle; several
/// threads may use it at once.
class WEFT_API Tokenizer {
 public:
  /// Reads tokenizer.json, or else tokenizer.model, and where they exist tokenizer_config.json,
  /// generation_config.json or else config.json, and chat_template.jinja. std::invalid_argument
  /// names the file and what is wrong or not supported.
  static Tokenizer from_directory(const std::string& path);
  /// Reads one file, a tokenizer.json or a model of SentencePiece: there is no chat template then,
  /// and no token is known as bos or eos.
  static Tokenizer from_file(const std::string& path);
  /// True when the directory has one of the two files.
  static bool is_in(const std::string& directory);

  /// The ids of `text`. Invalid UTF-8 is read as U+FFFD. Special tokens that the text contains
  /// become their ids. `add_special`: with the tokens that the model expects around a text, such as
  /// the first token of Llama or [CLS] and [SEP] of BERT.
  std::vector<int64_t> encode(std::string_view text, bool add_special = true) const;
  /// The text of the tokens; what is not UTF-8 becomes U+FFFD. `skip_special`: leaves special
  /// tokens out. std::invalid_argument for an id that is not below `size()`.
  std::string decode(std::span<const int64_t> ids, bool skip_special = true) const;

  /// One more than the largest id.
  int64_t size() const;
  /// The token of an id as the file has it; empty where an id has none.
  std::string token(int64_t id) const;
  /// The id of a token as the file has it.
  std::optional<int64_t> id(std::string_view token) const;
  bool is_special(int64_t id) const;
  /// The tokens that begin and end a text.
  std::optional<int64_t> bos() const;
  std::optional<int64_t> eos() const;
  /// The ids that end a generated text, ascending: `eos()`, those of generation_config.json
  /// (without that file, of config.json) and the token that the chat template writes after an
  /// answer.
  const std::vector<int64_t>& end_ids() const;

  /// The conversation as text in the form that the model was trained on; encode it without
  /// `add_special`. Equal to `apply_chat_template` of transformers: the model's template is
  /// rendered as Jinja2 does. std::invalid_argument when the directory has no chat template, the
  /// template does not allow the messages, or has something that is not supported, which is named.
  std::string chat(std::span<const ChatMessage> messages, const ChatOptions& options = {}) const;
  /// The same for messages with any fields, a JSON array, and any variables of the template, a JSON
  /// object: tools, documents, add_generation_prompt (false by default) and others.
  std::string apply_chat_template(const std::string& messages,
                                  const std::string& variables = "{}") const;
  /// The same; also adds the bytes [begin, end) of the text that the template has within
  /// `{% generation %}` blocks, which mark what the assistant says.
  std::string apply_chat_template(const std::string& messages, const std::string& variables,
                                  std::vector<std::pair<size_t, size_t>>& generated) const;
  /// The name of the chat template: "default" for that of the model; empty when there is none.
  const std::string& chat_template() const;
  /// The same tokenizer with one of `chat_templates()`, with another template of the model's, or
  /// with the Jinja text that is given, which has a brace.
  Tokenizer with_chat_template(const std::string& name) const;
  static std::vector<std::string> chat_templates();
  /// A hash of the files and of the chat template: equal for tokenizers that give equal ids.
  uint64_t digest() const;

 private:
  struct Body;
  explicit Tokenizer(std::shared_ptr<const Body> body) : body_(std::move(body)) {}
  std::shared_ptr<const Body> body_;
  friend class TextStream;
};

/// Makes text from a stream of tokens: each call returns the text that is complete, so that no
/// character is cut. Joined, the texts equal `Tokenizer::decode` of the ids where those make UTF-8.
class WEFT_API TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer, bool skip_special = true);
  TextStream(TextStream&&) noexcept;
  TextStream& operator=(TextStream&&) noexcept;
  ~TextStream();
  /// The text that the token completes; std::invalid_argument for an id that is not below `size()`.
  std::string push(int64_t id);
  /// Replaces an incomplete character at the end.
  std::string finish();

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace weft
