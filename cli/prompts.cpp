// SPDX-License-Identifier: Apache-2.0
#include "cli/prompts.h"

#include "weft/error.h"

namespace weft::cli {

Prompts::Prompts(const ServeOptions& options) {
  const std::string& directory = options.tokenizer.empty() ? options.model : options.tokenizer;
  if (!options.tokenizer.empty() || Tokenizer::is_in(directory)) {
    tokenizer_ = Tokenizer::from_directory(directory);
  }
  if (!options.chats && !(options.system.empty() && options.chat_template.empty())) {
    fail("sample: ", options.system.empty() ? "--chat-template" : "--system",
         " is given without --chat, expected both");
  }
  if (options.chats && !tokenizer_) {
    fail("sample: ", directory,
         " has no tokenizer, expected one for --chat; name it by --tokenizer");
  }
  if (!options.stops.empty() && !tokenizer_) {
    fail("sample: ", directory,
         " has no tokenizer, expected one for --stop; name it by --tokenizer");
  }
  if (!options.chat_template.empty()) {
    tokenizer_ = tokenizer_->with_chat_template(options.chat_template);
  }
  for (const std::string& prompt : options.prompts) add(options, prompt);
}

void Prompts::add(const ServeOptions& options, const std::string& prompt) {
  if (prompt.empty()) fail("--prompt is empty, expected at least one byte");
  std::vector<int64_t> ids;
  if (options.chats) {
    std::vector<ChatMessage> messages;
    if (!options.system.empty()) messages.push_back({"system", options.system});
    messages.push_back({"user", prompt});
    ids = tokenizer_->encode(tokenizer_->chat(messages), false);
  } else if (tokenizer_) {
    ids = tokenizer_->encode(prompt);
  } else {
    for (const char byte : prompt) ids.push_back(byte & 0xff);
  }
  if (ids.empty()) fail("--prompt: ", in_quotes(prompt), " has 0 tokens, expected at least 1");
  ids_.push_back(std::move(ids));
}

const std::vector<int64_t>& Prompts::ids(size_t at, int64_t vocabulary) const {
  for (const int64_t id : ids_[at]) {
    if (id < vocabulary) continue;
    fail("--prompt: ", tokenizer_ ? "token " : "byte ", id,
         " is beyond the vocabulary, expected 0 to ", vocabulary - 1);
  }
  return ids_[at];
}

}  // namespace weft::cli
