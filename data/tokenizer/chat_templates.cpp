// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/chat_templates.h"

#include <algorithm>
#include <utility>

#include "data/tokenizer/unicode.h"

namespace weft::text {

using System = ChatTemplate::System;
using Trim = ChatTemplate::Trim;

/// Marks of templates with a default system message; forms without one lack these.
static constexpr const char* kOwnSystem[] = {"You are", "!= 'system'", "!= \"system\"",
                                             "default_system"};

/// The texts and those of a separate system message.
static std::vector<const char*> and_own_system(std::vector<const char*> lacks) {
  lacks.insert(lacks.end(), std::begin(kOwnSystem), std::end(kOwnSystem));
  return lacks;
}

/// The template of another name, recognized by other texts; null: with its default system message.
static ChatTemplate variant(ChatTemplate made, const char* name, std::vector<const char*> has,
                            std::vector<const char*> lacks, const char* default_system = nullptr) {
  made.name = name;
  made.has = std::move(has);
  made.lacks = std::move(lacks);
  if (default_system) made.default_system = default_system;
  return made;
}

static std::vector<ChatTemplate> llama_templates() {
  static constexpr const char* kTrimmed = "message['content'] | trim + '<|eot_id|>'";
  static constexpr const char* dated_system =
      "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
      "Today Date: {date}\n\n{content}<|eot_id|>";
  const ChatTemplate llama3 = {
      .name = "llama3",
      .has = {"<|start_header_id|>", kTrimmed},
      .lacks = and_own_system({"tool", "Cutting Knowledge Date", "messages[0]", "system_message"}),
      .start = "{bos}",
      .user = "<|start_header_id|>{role}<|end_header_id|>\n\n{content}<|eot_id|>",
      .generation = "<|start_header_id|>assistant<|end_header_id|>\n\n",
      .trim = Trim::all,
      .end_of_turn = "<|eot_id|>"};
  ChatTemplate llama31 =
      variant(llama3, "llama3.1",
              {"<|start_header_id|>", kTrimmed, "Cutting Knowledge Date: December 2023",
               "set system_message = \"\""},
              and_own_system({"strftime_now"}), "");
  llama31.system = dated_system;
  ChatTemplate llama32 = variant(llama31, "llama3.2", llama31.has, and_own_system({}));
  llama32.has.push_back("strftime_now");
  llama32.today = "%d %b %Y";
  return {{.name = "llama2",
           .has = {"<<SYS>>", "bos_token + '[INST] ' + content"},
           .lacks = {"You are", "DEFAULT"},
           .user = "{bos}[INST] {content} [/INST]",
           .system = "<<SYS>>\n{system}\n<</SYS>>\n\n{content}",
           .assistant = " {content} {eos}",
           .system_is = System::first_user,
           .trim = Trim::all,
           .trims_whole = true,
           .alternates = true},
          llama3,
          llama31,
          llama32};
}

static std::vector<ChatTemplate> mistral_templates() {
  const ChatTemplate mistral = {
      .name = "mistral",
      .has = {"'[INST] ' + message['content'] + ' [/INST]'", "message['content'] + eos_token"},
      .lacks = {"system_message", "messages[0]", "eos_token + ' '", "AVAILABLE_TOOLS"},
      .start = "{bos}",
      .user = "[INST] {content} [/INST]",
      .assistant = "{content}{eos}",
      .system_is = System::refused,
      .alternates = true};
  ChatTemplate first = variant(
      mistral, "mistral-v0.1",
      {"'[INST] ' + message['content'] + ' [/INST]'", "message['content'] + eos_token + ' '"},
      {"system_message", "AVAILABLE_TOOLS"});
  first.assistant = "{content}{eos} ";
  ChatTemplate v1 =
      variant(mistral, "mistral-v1", {"' [INST] '", "system_message"}, {"AVAILABLE_TOOLS"});
  v1.system = "{system}\n\n{content}";
  v1.user = " [INST] {content} [/INST]";
  v1.assistant = " {content}{eos}";
  v1.system_is = System::first_user;
  ChatTemplate mixtral =
      variant(v1, "mixtral-8x22b",
              {"'[INST] ' + message['content'] + '[/INST]'", "loop.last and system_message",
               "' ' + message['content'] + eos_token"},
              {"AVAILABLE_TOOLS"});
  mixtral.user = "[INST] {content}[/INST]";
  mixtral.system_is = System::last_user;
  ChatTemplate v3 =
      variant(mixtral, "mistral-v3",
              {"[AVAILABLE_TOOLS] [", "\"[INST] \"", "loop.last and system_message"}, {});
  v3.trim = Trim::assistant;
  ChatTemplate tekken =
      variant(mixtral, "mistral-v3-tekken",
              {"[AVAILABLE_TOOLS][", "\"[INST]\"", "loop.last and system_message"}, {});
  tekken.user = "[INST]{content}[/INST]";
  tekken.assistant = "{content}{eos}";
  return {mistral, first, v1, mixtral, v3, tekken};
}

/// The default system message of the published template for a model that thinks.
static constexpr const char* kSmolLm3Thinking =
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face. Your role as an "
    "assistant involves thoroughly exploring questions through a systematic thinking process "
    "before providing the final precise and accurate solutions. This requires engaging in a "
    "comprehensive cycle of analysis, summarizing, exploration, reassessment, reflection, "
    "backtracking, and iteration to develop well-considered thinking process. Please structure "
    "your response into two main sections: Thought and Solution using the specified format: "
    "<think> Thought section </think> Solution section. In the Thought section, detail your "
    "reasoning process in steps. Each step should include detailed considerations such as "
    "analysing questions, summarizing relevant findings, brainstorming new ideas, verifying the "
    "accuracy of the current steps, refining any errors, and revisiting previous steps. In the "
    "Solution section, based on various attempts, explorations, and reflections from the Thought "
    "section, systematically present the final solution that you deem correct. The Solution "
    "section should be logical, accurate, and concise and detail necessary steps needed to reach "
    "the conclusion.";

/// The published template does not end the turn of the system message.
static ChatTemplate smollm3_template(const ChatTemplate& chatml) {
  ChatTemplate made =
      variant(chatml, "smollm3",
              {"named SmolLM", "Knowledge Cutoff Date: June 2025", "/system_override",
               ".replace(\"/no_think\", \"\").replace(\"/think\", \"\").rstrip()"},
              {"{%- endif -%}\n  {{- \"<|im_end|>\n\" -}}"});
  made.overriding_system = made.user;
  made.system =
      "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\nToday Date: {date}\n"
      "Reasoning Mode: {mode}\n\n## Custom Instructions\n\n{content}\n\n";
  made.assistant = "<|im_start|>assistant\n{thoughts}{content}<|im_end|>\n";
  made.generation = "<|im_start|>assistant\n{thoughts}";
  made.thoughts = ChatTemplate::Thoughts::smollm3;
  made.no_thoughts = "<think>\n\n</think>\n";
  made.default_system = kSmolLm3Thinking;
  made.default_system_no_thoughts =
      "You are a helpful AI assistant named SmolLM, trained by Hugging Face.";
  made.today = "%d %B %Y";
  return made;
}

static std::vector<ChatTemplate> chatml_templates() {
  const ChatTemplate chatml = {.name = "chatml",
                               .has = {"'<|im_start|>' + message['role'] + '", "<|im_end|>"},
                               .lacks = and_own_system({"tool", "think", "bos_token"}),
                               .user = "<|im_start|>{role}\n{content}<|im_end|>\n",
                               .generation = "<|im_start|>assistant\n",
                               .end_of_turn = "<|im_end|>"};
  ChatTemplate qwen3 = variant(chatml, "qwen3",
                               {"<|im_start|>", "enable_thinking is false", "last_query_index",
                                "loop.last or (not loop.last and reasoning_content)"},
                               {"reasoning_content|trim", "vision"});
  qwen3.thoughts = ChatTemplate::Thoughts::qwen3;
  qwen3.generation = "<|im_start|>assistant\n{thoughts}";
  qwen3.no_thoughts = "<think>\n\n</think>\n\n";
  return {
      chatml,
      smollm3_template(chatml),
      variant(chatml, "smollm2",
              {"<|im_start|>system",
               "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>"},
              {"think"}, "You are a helpful AI assistant named SmolLM, trained by Hugging Face"),
      variant(chatml, "qwen2", {"<|im_start|>system", "You are a helpful assistant.<|im_end|>"},
              {"Qwen", "tool", "vision", "think", "bos_token"}, "You are a helpful assistant."),
      variant(chatml, "qwen2.5",
              {"<|im_start|>",
               "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>"},
              {"vision", "think"},
              "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
      variant(chatml, "qwen3-instruct", {"'<|im_start|>' + message.role + '", "<tool_call>"},
              {"You are Qwen", "You are a helpful", "think", "vision", "messages[0]['role']",
               "bos_token"}),
      qwen3};
}

static std::vector<ChatTemplate> gemma_templates() {
  const ChatTemplate gemma = {.name = "gemma",
                              .has = {"<start_of_turn>", "System role not supported"},
                              .start = "{bos}",
                              .user = "<start_of_turn>user\n{content}<end_of_turn>\n",
                              .assistant = "<start_of_turn>model\n{content}<end_of_turn>\n",
                              .generation = "<start_of_turn>model\n",
                              .system_is = System::refused,
                              .trim = Trim::all,
                              .alternates = true,
                              .end_of_turn = "<end_of_turn>"};
  ChatTemplate gemma3 = variant(gemma, "gemma3", {"<start_of_turn>", "first_user_prefix"},
                                {"tool", "default_system"});
  gemma3.system = "{system}\n\n{content}";
  gemma3.system_is = System::first_user;
  return {gemma, gemma3};
}

static std::vector<ChatTemplate> other_templates() {
  const ChatTemplate phi3 = {.name = "phi3",
                             .has = {"<|end|>", "<|system|>", "{{ eos_token }}"},
                             .lacks = {"and message['content']", "tool"},
                             .user = "<|{role}|>\n{content}<|end|>\n",
                             .generation = "<|assistant|>\n",
                             .end = "{eos}",
                             .end_of_turn = "<|end|>"};
  ChatTemplate phi35 = variant(phi3, "phi3.5", phi3.has, {"tool"});
  phi35.has.push_back("message['role'] == 'system' and message['content']");
  phi35.skips_empty_system = true;
  return {phi3,
          phi35,
          {.name = "zephyr",
           .has = {"'<|user|>", "message['content'] + eos_token", "loop.last"},
           .lacks =
               and_own_system({"bos_token", "<|end|>", "not loop.last", "+ message['content'] }}"}),
           .user = "<|{role}|>\n{content}{eos}\n",
           .generation = "<|assistant|>\n"},
          {.name = "olmo2",
           .has = {"bos_token", "'<|user|>", "not loop.last"},
           .lacks = and_own_system({"<|end|>"}),
           .start = "{bos}",
           .user = "<|{role}|>\n{content}\n",
           .assistant = "<|assistant|>\n{content}{eos}\n",
           .generation = "<|assistant|>\n",
           .last_assistant = "<|assistant|>\n{content}{eos}"}};
}

/// The forms of Granite 3.0, of 3.1, 3.2 and 3.3, and of 3.3 as it was first published.
static std::vector<ChatTemplate> granite_templates() {
  const ChatTemplate granite3 = {
      .name = "granite3",
      .has = {"'<|start_of_role|>user<|end_of_role|>' + message['content']", "<|end_of_text|>"},
      .lacks = and_own_system({"Knowledge Cutoff"}),
      .user = "<|start_of_role|>{role}<|end_of_role|>{content}<|end_of_text|>\n",
      .generation = "<|start_of_role|>assistant<|end_of_role|>",
      .end_of_turn = "<|end_of_text|>"};
  ChatTemplate granite31 = variant(
      granite3, "granite3.1",
      {"<|start_of_role|>", "= \"Knowledge Cutoff Date: April 2024.",
       "strftime_now('%B %d, %Y') + \".", "You are Granite, developed by IBM.\"",
       "+ \" You are a helpful AI assistant.\" %}"},
      {". You are Granite"},
      "Knowledge Cutoff Date: April 2024.\nToday's Date: {date}.\nYou are Granite, developed by "
      "IBM. You are a helpful AI assistant.");
  granite31.today = "%B %d, %Y";
  ChatTemplate first33 = variant(
      granite31, "granite3.3-first", granite31.has, {},
      " Knowledge Cutoff Date: April 2024.\n Today's Date: {date}. You are Granite, developed by "
      "IBM. You are a helpful AI assistant.");
  first33.has[1] = "= \" Knowledge Cutoff Date: April 2024.";
  first33.has[3] = "\". You are Granite, developed by IBM.\"";
  return {granite3, granite31, first33};
}

static std::vector<ChatTemplate> deepseek_templates() {
  return {{.name = "deepseek-v2",
           .has = {"{{ bos_token }}", "'User: ' + message['content'] + '\n\n'",
                   "'Assistant: ' + message['content'] + eos_token", "'Assistant:'"},
           .lacks = and_own_system({"tool"}),
           .start = "{bos}",
           .user = "User: {content}\n\n",
           .system = "{content}\n\n",
           .assistant = "Assistant: {content}{eos}",
           .generation = "Assistant:"},
          {.name = "deepseek-v3",
           .has = {"'<｜User｜>' + message['content']", "ns.system_prompt"},
           .lacks = {"think", "You are", "{%- for message in messages %}    "},
           .start = "{bos}",
           .user = "<｜User｜>{content}",
           .system = "{content}",
           .assistant = "<｜Assistant｜>{content}<｜end▁of▁sentence｜>",
           .generation = "<｜Assistant｜>",
           .end_of_turn = "<｜end▁of▁sentence｜>"}};
}

std::span<const ChatTemplate> all_chat_templates() {
  static const std::vector<ChatTemplate> all = [] {
    std::vector<ChatTemplate> made;
    for (const auto& family :
         {llama_templates(), mistral_templates(), chatml_templates(), gemma_templates(),
          other_templates(), granite_templates(), deepseek_templates()}) {
      made.insert(made.end(), family.begin(), family.end());
    }
    return made;
  }();
  return all;
}

const ChatTemplate* chat_template_of(std::string_view jinja) {
  // A text within a template has its line ends as they are or as \n.
  std::string plain;
  append_replaced(plain, jinja, "\\n", "\n");
  const auto contained = [&](const char* text) { return plain.find(text) != plain.npos; };
  for (const ChatTemplate& form : all_chat_templates()) {
    if (*form.generation && !contained("add_generation_prompt")) continue;
    if (std::ranges::all_of(form.has, contained) && std::ranges::none_of(form.lacks, contained)) {
      return &form;
    }
  }
  return nullptr;
}

}  // namespace weft::text
