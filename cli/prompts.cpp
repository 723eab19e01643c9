// SPDX-License-Identifier: Apache-2.0
#include "cli/prompts.h"

#include <algorithm>

#include "weft/error.h"
#include "weft/extend/file.h"
#include "weft/extend/run_folder.h"
#include "weft/extend/saved_model.h"
#include "weft/extend/store.h"

namespace weft::cli {

/// All prompts are held in memory.
static constexpr int64_t kLargestPrompts = int64_t{64} << 20;

Tokenizer tokenizer_at(const std::string& path) {
  return is_directory(path) ? Tokenizer::from_directory(path) : Tokenizer::from_file(path);
}

/// --tokenizer, the model, or the folder of its run, which keeps the files of --init.
static std::string tokenizer_directory(const ServeOptions& options) {
  if (!options.tokenizer.empty()) return options.tokenizer;
  if (is_hugging_face(options.model) || Tokenizer::is_in(options.model)) return options.model;
  const std::string kept = local_copy(kept_model_files(options.model));
  return Tokenizer::is_in(kept) ? kept : options.model;
}

Prompts::Prompts(const ServeOptions& options) {
  const std::string directory = tokenizer_directory(options);
  if (!options.tokenizer.empty() || Tokenizer::is_in(directory)) {
    tokenizer = tokenizer_at(directory);
  }
  if (!options.chats && !(options.system.empty() && options.chat_template.empty())) {
    fail("sample: ", options.system.empty() ? "--chat-template" : "--system",
         " is given without --chat, expected both");
  }
  if (!tokenizer && (options.chats || !options.stops.empty())) {
    fail("sample: ", directory, " has no tokenizer, expected one for ",
         options.chats ? "--chat" : "--stop", "; name it by --tokenizer");
  }
  if (!options.chat_template.empty()) {
    tokenizer = tokenizer->with_chat_template(options.chat_template);
  }
  if (options.chats && tokenizer->chat_template().empty()) {
    fail("sample: ", directory, " has no chat template, expected one; name it by --chat-template");
  }
  if (!options.system.empty()) {  // templates may refuse it
    (void)tokenizer->chat(std::vector<ChatMessage>{{"system", options.system}, {"user", "a"}});
  }
  for (const std::string& prompt : options.prompts) add(options, "--prompt", prompt);
  if (!options.prompts_file.empty()) add_lines(options);
  if (ids.empty() && !options.chats) {
    fail("sample: --prompt is missing, expected it or --prompts, or --chat for messages on ",
         "standard input");
  }
}

void Prompts::add_lines(const ServeOptions& options) {
  const std::string text = read_file("--prompts", options.prompts_file, kLargestPrompts);
  size_t number = 0;
  for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.pop_back();
    add(options, concat("--prompts: line ", ++number, " of ", options.prompts_file), line);
  }
  if (number == 0) fail("--prompts: ", options.prompts_file, " has 0 lines, expected at least 1");
}

void Prompts::add(const ServeOptions& options, const std::string& name, const std::string& prompt) {
  if (prompt.empty()) fail(name, " is empty, expected at least one byte");
  std::vector<int64_t>& made = ids.emplace_back();
  if (options.chats) {
    std::vector<ChatMessage> messages;
    if (!options.system.empty()) messages.push_back({"system", options.system});
    messages.push_back({"user", prompt});
    made = tokenizer->encode(tokenizer->chat(messages), false);
  } else if (tokenizer) {
    made = tokenizer->encode(prompt);
  } else {
    for (const char byte : prompt) made.push_back(byte & 0xff);
  }
  if (made.empty()) fail(name, ": ", in_quotes(prompt), " has 0 tokens, expected at least 1");
  names.push_back(name);
  starts.push_back(options.chats ? "" : prompt);
}

void check_prompt(const std::string& name, std::span<const int64_t> ids, const char* unit,
                  const TransformerConfig& config) {
  for (const int64_t id : ids) {
    if (id < config.vocabulary) continue;
    fail(name, ": ", unit, ' ', id, " is beyond the vocabulary, expected 0 to ",
         config.vocabulary - 1);
  }
  const auto size = static_cast<int64_t>(ids.size());
  if (size <= config.max_sequence) return;
  fail(name, " has ", size, " tokens, expected at most ", config.max_sequence,
       ", those that the model takes");
}

void Prompts::check(const TransformerConfig& config) const {
  for (size_t at = 0; at < ids.size(); ++at) {
    check_prompt(names[at], ids[at], tokenizer ? "token" : "byte", config);
  }
}

}  // namespace weft::cli
