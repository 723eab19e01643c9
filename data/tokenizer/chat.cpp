// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/chat.h"

#include <algorithm>
#include <stdexcept>

#include "data/unicode/unicode.h"
#include "weft/error.h"

namespace weft::text {

using jinja::Dict;
using jinja::Named;
using jinja::Value;
using Tokens = std::vector<std::pair<std::string, std::string>>;

Chat read_chat(const NamedTemplate& from) {
  Chat made{from.name};
  if (from.name.empty()) return made;
  try {
    made.form = std::make_shared<const jinja::Template>(from.text);
  } catch (const std::invalid_argument& problem) {
    made.error = problem.what();
  }
  return made;
}

/// A message without its empty fields. Thoughts have the names that templates read.
static Value normalized(const Value& message, size_t number) {
  const Dict* given = message.to<Dict>();
  if (!given) {
    fail("chat: message ", number, " is a ", jinja::type_name(message), ", expected a dict");
  }
  std::vector<std::pair<Value, Value>> items;
  for (const auto& [key, value] : given->items) {
    if (!value.is_none()) items.emplace_back(key, value);
  }
  const auto find = [&](const char* name) {
    const Value* found = given->find(name);
    return found && !found->is_none() ? found : nullptr;
  };
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const Value* thoughts = find(name);
    if (!thoughts) continue;
    if (!find("thinking")) items.insert(items.begin(), {"thinking", *thoughts});
    items.emplace_back("reasoning_content", *thoughts);
    break;
  }
  return jinja::make_dict(std::move(items));
}

Named chat_variables(const Value& messages, const Tokens& tokens, const Named& more) {
  const jinja::List* list = messages.to<jinja::List>();
  if (!list) fail("chat: the messages are a ", jinja::type_name(messages), ", expected a list");
  if (list->items.empty()) fail("chat: there are 0 messages, expected at least 1");
  jinja::Values made;
  for (const Value& message : list->items) made.push_back(normalized(message, made.size()));
  Named variables = {{"messages", jinja::make_list(std::move(made))},
                     {"tools", jinja::None{}},
                     {"documents", jinja::None{}},
                     {"add_generation_prompt", false}};
  const auto set = [&](const std::string& name, const Value& value) {
    const auto known =
        std::ranges::find(variables, name, [](const auto& row) { return row.first; });
    if (known == variables.end()) {
      variables.emplace_back(name, value);
    } else {
      known->second = value;
    }
  };
  for (const auto& [name, token] : tokens) set(name, token);
  for (const auto& [name, value] : more) {
    if (name == "messages") fail("chat: a variable is messages, expected another name");
    set(name, value);
  }
  return variables;
}

Value messages_of(std::span<const ChatMessage> messages) {
  jinja::Values made;
  for (const ChatMessage& message : messages) {
    made.push_back(jinja::make_dict(
        {{"role", repaired(message.role)}, {"content", repaired(message.content)}}));
  }
  return jinja::make_list(std::move(made));
}

Named variables_of(const ChatOptions& options) {
  Named made = {{"add_generation_prompt", options.generation_prompt}};
  if (!options.date.empty()) made.emplace_back("date_string", repaired(options.date));
  if (options.thinking) return made;
  // The families have one of two names for it.
  made.emplace_back("enable_thinking", false);
  made.emplace_back("thinking", false);
  return made;
}

std::string after_answer(const Chat& chat, const Tokens& tokens) {
  static constexpr std::string_view kAnswer = "weft";
  const std::vector<ChatMessage> messages = {{"user", "a"}, {"assistant", std::string(kAnswer)}};
  if (!chat.form) return {};
  try {
    const std::string text = chat.form->render(chat_variables(messages_of(messages), tokens, {}));
    const size_t at = text.rfind(kAnswer);
    if (at == text.npos) return {};
    return std::string(
        stripped(std::string_view(text).substr(at + kAnswer.size()), true, false, is_white_space));
  } catch (const std::invalid_argument&) {
    return {};
  }
}

}  // namespace weft::text
