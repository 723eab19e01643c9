// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <ctime>
#include <utility>

#include "data/tokenizer/chat_templates.h"
#include "data/tokenizer/unicode.h"
#include "weft/error.h"

namespace weft::text {

/// White space as Python's str.strip removes it.
static bool is_stripped(char32_t value) {
  return is_white_space(value) || (value >= 0x1C && value <= 0x1F);
}

static std::string_view without_line_ends(std::string_view text, bool left, bool right) {
  return stripped(text, left, right, [](char32_t value) { return value == '\n'; });
}

/// The texts that stand for the names in braces.
using ChatNames = std::vector<std::pair<std::string_view, std::string_view>>;

/// Appends a form with its names replaced; what replaces them is not searched.
static void append_form(std::string& to, std::string_view form, const ChatNames& names) {
  while (!form.empty()) {
    const auto begins = [&](const auto& name) { return form.starts_with(name.first); };
    const auto found = std::ranges::find_if(names, begins);
    if (found == names.end()) {
      to += form[0];
      form.remove_prefix(1);
    } else {
      to += found->second;
      form.remove_prefix(found->first.size());
    }
  }
}

static void check_messages(const ChatTemplate& form, std::span<const ChatMessage> messages) {
  if (messages.empty()) fail("chat: there are 0 messages, expected at least 1");
  const bool has_system = messages[0].role == "system";
  if (has_system && form.system_is == ChatTemplate::System::refused) {
    fail("chat: message 0 has the role \"system\", expected user; the template ", form.name,
         " has no system message");
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    const bool known = role == "user" || role == "assistant" || (role == "system" && i == 0);
    if (!known) {
      fail("chat: message ", i, " has the role ", in_quotes(role), ", expected ",
           i == 0 ? "system, " : "", "user or assistant");
    }
    if (!form.alternates || role == "system") continue;
    const bool user_is_next = (i - (has_system ? 1 : 0)) % 2 == 0;
    if ((role == "user") != user_is_next) {
      fail("chat: message ", i, " has the role ", in_quotes(role), ", expected ",
           user_is_next ? "user" : "assistant", "; they take turns in the template ", form.name);
    }
  }
}

static std::string today(const char* form) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, form, &parts)};
}

/// Removes all occurrences of a text; returns whether there was one.
static bool remove_all(std::string& from, std::string_view text) {
  std::string rest;
  append_replaced(rest, from, text, "");
  from.swap(rest);
  return from.size() < rest.size();
}

/// An answer as Qwen 3 writes it: with its thoughts after the last question only.
static std::string with_thoughts(const std::string& content, bool is_after_question, bool is_last) {
  static constexpr std::string_view open = "<think>", close = "</think>";
  std::string_view thoughts, answer = content;
  const size_t first = answer.find(close);
  if (first != answer.npos) {
    thoughts = without_line_ends(answer.substr(0, first), false, true);
    const size_t begin = thoughts.rfind(open);
    if (begin != thoughts.npos) thoughts.remove_prefix(begin + open.size());
    thoughts = without_line_ends(thoughts, true, false);
    answer = without_line_ends(answer.substr(answer.rfind(close) + close.size()), true, false);
  }
  if (!is_after_question || (!is_last && thoughts.empty())) return std::string(answer);
  return concat("<think>\n", without_line_ends(thoughts, true, true), "\n</think>\n\n",
                without_line_ends(answer, true, false));
}

/// The last question: the last message of the user that is not the answer of a tool.
static size_t last_question(std::span<const ChatMessage> messages) {
  for (size_t i = messages.size(); i-- > 0;) {
    const ChatMessage& message = messages[i];
    const bool is_tool = message.content.starts_with("<tool_response>") &&
                         message.content.ends_with("</tool_response>");
    if (message.role == "user" && !is_tool) return i;
  }
  return messages.size() - 1;
}

/// One conversation and the template that it is written in.
class ChatWriter {
 public:
  ChatWriter(const ChatTemplate& form, std::span<const ChatMessage> messages, ChatNames names,
             bool thinking)
      : form_(form), messages_(messages), names_(std::move(names)), thinks_(thinking) {}

  std::string text(bool generation_prompt) {
    write(form_.start);
    if (messages_[0].role == "system") system_ = messages_[0].content;
    if (form_.thoughts == Thoughts::smollm3) {
      write_switching_system();
    } else if (form_.system_is == System::turn) {
      write_system();
    }
    const size_t question = form_.thoughts == Thoughts::qwen3 ? last_question(messages_) : 0;
    for (size_t i = 0; i < messages_.size(); ++i) {
      if (messages_[i].role == "user") write_user(i);
      if (messages_[i].role == "assistant") write_assistant(i, question);
    }
    write(generation_prompt ? form_.generation : form_.end);
    return std::move(text_);
  }

 private:
  using System = ChatTemplate::System;
  using Trim = ChatTemplate::Trim;
  using Thoughts = ChatTemplate::Thoughts;

  void write(std::string_view form, std::string_view role = {}, std::string_view content = {}) {
    ChatNames names = names_;
    names.emplace_back("{role}", role);
    names.emplace_back("{content}", content);
    names.emplace_back("{mode}", thinks_ ? "/think" : "/no_think");
    names.emplace_back("{thoughts}", thinks_ ? "" : form_.no_thoughts);
    append_form(text_, form, names);
  }
  void write_turn(const char* form, std::string_view role, std::string_view content) {
    write(form ? form : form_.user, role, content);
  }
  std::string_view trimmed(std::string_view content, bool is_assistant) const {
    const bool trims = form_.trim == Trim::all || (form_.trim == Trim::assistant && is_assistant);
    return trims ? stripped(content, true, true, is_stripped) : content;
  }

  void write_system() {
    if (!system_ && form_.default_system) {
      append_form(system_.emplace(), form_.default_system, names_);
    }
    if (!system_ || (system_->empty() && form_.skips_empty_system)) return;
    write_turn(form_.system, "system", trimmed(*system_, false));
  }

  /// The system message of SmolLM 3. One that switches thoughts is written without the switch.
  void write_switching_system() {
    std::string system = system_.value_or("");
    const bool overrides = system.find("/system_override") != system.npos;
    const bool denies = remove_all(system, "/no_think"), asks = remove_all(system, "/think");
    if (denies || asks) thinks_ = !denies;
    if (overrides) remove_all(system, "/system_override");
    system = stripped(system, false, true, is_stripped);
    if (overrides) return write_turn(form_.overriding_system, "system", system);
    if (system.empty()) {
      system = thinks_ ? form_.default_system : form_.default_system_no_thoughts;
    }
    write_turn(form_.system, "system", system);
  }

  void write_user(size_t at) {
    const bool is_first = at == (messages_[0].role == "system" ? 1 : 0);
    const bool takes_system =
        system_ && ((form_.system_is == System::first_user && is_first) ||
                    (form_.system_is == System::last_user && at + 1 == messages_.size()));
    if (!takes_system) return write(form_.user, "user", trimmed(messages_[at].content, false));
    const std::string_view content = messages_[at].content;
    std::string whole;
    append_form(whole, form_.system,
                {{"{system}", *system_},
                 {"{content}", form_.trims_whole ? content : trimmed(content, false)}});
    write(form_.user, "user", form_.trims_whole ? trimmed(whole, false) : whole);
  }

  void write_assistant(size_t at, size_t question) {
    const bool is_last = at + 1 == messages_.size();
    std::string content = messages_[at].content;
    if (form_.thoughts == Thoughts::qwen3) {
      content = with_thoughts(content, at > question, is_last);
    } else if (form_.thoughts == Thoughts::smollm3) {
      content = without_line_ends(content, true, false);
    }
    write_turn(is_last && form_.last_assistant ? form_.last_assistant : form_.assistant,
               "assistant", trimmed(content, true));
  }

  const ChatTemplate& form_;
  std::span<const ChatMessage> messages_;
  ChatNames names_;
  bool thinks_;
  std::optional<std::string> system_;
  std::string text_;
};

std::string chat_text(const ChatTemplate& form, std::span<const ChatMessage> messages,
                      const ChatOptions& options, const std::string& bos, const std::string& eos) {
  check_messages(form, messages);
  std::vector<ChatMessage> valid(messages.begin(), messages.end());
  for (ChatMessage& message : valid) message.content = repaired(message.content);
  std::string date = options.date;
  if (date.empty()) date = form.today ? today(form.today) : "26 Jul 2024";
  ChatWriter writer(form, valid, {{"{bos}", bos}, {"{eos}", eos}, {"{date}", date}},
                    options.thinking);
  return writer.text(options.generation_prompt);
}

}  // namespace weft::text
