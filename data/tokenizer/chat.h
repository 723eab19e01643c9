// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/template/template.h"
#include "weft/tokenizer.h"

namespace weft::text {

/// A chat template, as Jinja text.
struct NamedTemplate {
  std::string name, text;
};

/// The templates that weft itself has.
const std::vector<NamedTemplate>& named_templates();

/// The template that is in use. `error`: what is wrong with it; it has no `form` then.
struct Chat {
  std::string name = {};
  std::shared_ptr<const jinja::Template> form = {};
  std::string error = {};
};

/// Reads a template; errors are kept.
Chat read_chat(const NamedTemplate& from);

/// Returns the variables of a template, under the names that transformers uses: the messages, the
/// named tokens and the caller's additions.
jinja::Named chat_variables(const jinja::Value& messages,
                            const std::vector<std::pair<std::string, std::string>>& tokens,
                            const jinja::Named& more);
/// The same for messages with texts only.
jinja::Value messages_of(std::span<const ChatMessage> messages);
jinja::Named variables_of(const ChatOptions& options);

/// Returns what a template writes between an answer and the end of the text; empty if it fails.
std::string after_answer(const Chat& chat,
                         const std::vector<std::pair<std::string, std::string>>& tokens);

}  // namespace weft::text
