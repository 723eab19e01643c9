// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/tokenizer.h"

namespace weft::text {

/// How a family writes a conversation. In the texts {content} stands for the message, {role} for
/// the role that speaks, {bos} and {eos} for tokens, {date} for a date, {system} for the
/// system message, {mode} for /think or /no_think, and {thoughts} for `no_thoughts` where the model
/// does not think.
struct ChatTemplate {
  /// How a system message is written.
  enum class System {
    /// It is a separate turn.
    turn,
    /// It is refused.
    refused,
    /// It is put into the first or last message of the user.
    first_user,
    last_user
  };
  /// What is removed at the ends of messages.
  enum class Trim { nothing, all, assistant };
  /// How thoughts are written. `kept`: as they are. `qwen3`: left out of earlier answers.
  /// `smollm3`: kept, and switched on and off by /think and /no_think in the system message.
  enum class Thoughts { kept, qwen3, smollm3 };

  const char* name;
  /// Texts that the family's published Jinja template has, and texts that it does not have.
  std::vector<const char*> has = {}, lacks = {};
  const char* start = "";
  /// The turns, by default those of the user; `system` is the form of the user's message with it
  /// for `first_user`, `last_user`.
  const char *user, *system = nullptr, *assistant = nullptr;
  const char* generation = "";
  System system_is = System::turn;
  Trim trim = Trim::nothing;
  /// Whether the user's message is trimmed with the system message in it, not before.
  bool trims_whole = false;
  /// Whether user and assistant must take turns.
  bool alternates = false;
  /// The system message when there is none.
  const char* default_system = nullptr;
  /// Whether an empty system message is left out.
  bool skips_empty_system = false;
  /// The last turn when it is the assistant's, if that differs; what ends a text without a
  /// generation prompt.
  const char* last_assistant = nullptr;
  const char* end = "";
  /// The token that ends the assistant's turn; empty: eos.
  const char* end_of_turn = "";
  /// The form, for strftime, of the date of today, the default; null: the default is 26 Jul 2024.
  const char* today = nullptr;
  Thoughts thoughts = Thoughts::kept;
  const char* no_thoughts = "";
  /// For SmolLM 3 only: the default system message of a model that does not think, and the form of
  /// a system message that contains /system_override.
  const char *default_system_no_thoughts = "", *overriding_system = "";
};

std::span<const ChatTemplate> all_chat_templates();
/// The template whose Jinja text this is, or null.
const ChatTemplate* chat_template_of(std::string_view jinja);

/// The conversation as text. std::invalid_argument when the template does not allow it.
std::string chat_text(const ChatTemplate& form, std::span<const ChatMessage> messages,
                      const ChatOptions& options, const std::string& bos, const std::string& eos);

}  // namespace weft::text
