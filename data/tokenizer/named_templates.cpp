// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "data/tokenizer/chat.h"
#include "weft/error.h"

// These short templates write the same as the published templates of model families, and refuse
// tools. Prefer a model's own template, where it has one.

namespace weft::text {

/// Ends each turn's loop, and begins the answer.
static std::string with_answer(const std::string& turn, const char* begin,
                               const char* otherwise = "") {
  return concat("{% for m in messages %}", turn, "{% endfor %}{% if add_generation_prompt %}",
                begin, "{% else %}", otherwise, "{% endif %}");
}

/// Users and assistants take turns.
static constexpr const char* kTurn =
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles "
    "must alternate user/assistant/user/assistant/...') }}{% endif %}";
/// The system message apart from the others.
static constexpr const char* kAside =
    "{% if messages[0].role == 'system' %}{% set system = messages[0].content %}"
    "{% set messages = messages[1:] %}{% endif %}";

/// Refuses what the templates would leave out.
static std::string without_tools(const std::string& name, const std::string& text) {
  const auto refuse = [&](const char* what) {
    return concat("{{ raise_exception('", what, ", expected none: weft has the template ", name,
                  " without tools; take the template of the model') }}");
  };
  return concat("{% if tools %}", refuse("tools are given"), "{% endif %}",
                "{% for m in messages %}{% if m.tool_calls %}", refuse("a message has tool_calls"),
                "{% endif %}{% if m.role == 'tool' %}", refuse("a message has the role tool"),
                "{% endif %}{% endfor %}", text);
}

static std::string chatml_after(const std::string& start) {
  return start + with_answer(R"({{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }})",
                             R"({{ '<|im_start|>assistant\n' }})");
}
/// ChatML with a system message where there is none.
static std::string chatml_with(const char* system) {
  return chatml_after(concat(R"({% if messages[0].role != 'system' %}{{ '<|im_start|>system\n)",
                             system, R"(<|im_end|>\n' }}{% endif %})"));
}

static std::string llama2() {
  return concat(kAside, "{% for m in messages %}", kTurn,
                R"({% set content = '<<SYS>>\n' + system + '\n<</SYS>>\n\n' + m.content )"
                R"(if system is defined and loop.first else m.content %}{% if m.role == 'user' %})"
                R"({{ bos_token ~ '[INST] ' + content.strip() + ' [/INST]' }}{% else %})"
                R"({{ ' ' + content.strip() + ' ' ~ eos_token }}{% endif %}{% endfor %})");
}

static std::string llama3_after(const std::string& start) {
  return concat("{{ bos_token }}", start,
                with_answer(R"({{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + )"
                            R"(m.content | trim + '<|eot_id|>' }})",
                            R"({{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }})"));
}
/// Returns Llama 3's template with a system message that names the date.
static std::string llama3_dated(const char* date) {
  return llama3_after(concat(
      kAside, "{% if date_string is not defined %}{% set date_string = ", date, " %}{% endif %}",
      R"({{ '<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n)"
      R"(Today Date: ' + date_string + '\n\n' + system | default('') | trim + '<|eot_id|>' }})"));
}

/// `place`: the user's message that takes the system message in.
static std::string mistral(const char* begin, const char* end, const char* answer,
                           const char* place = nullptr) {
  const std::string system =
      place ? concat(R"((system + '\n\n' if system is defined and loop.)", place, " else '') + ")
            : "";
  return concat(place ? kAside : "", "{{ bos_token }}{% for m in messages %}", kTurn,
                "{% if m.role == 'user' %}{{ '", begin, "' + ", system, "m.content + '", end,
                "' }}{% else %}{{ ", answer, " }}{% endif %}{% endfor %}");
}

static std::string gemma(const char* start, const char* system) {
  return concat(start, "{{ bos_token }}",
                with_answer(concat(kTurn,
                                   R"({{ '<start_of_turn>' + ('model' if m.role == 'assistant' )"
                                   R"(else m.role) + '\n' }})",
                                   system, R"({{ m.content | trim + '<end_of_turn>\n' }})"),
                            R"({{ '<start_of_turn>model\n' }})"));
}

static std::string phi3(const char* condition) {
  return with_answer(concat(condition, R"({{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }})",
                            *condition ? "{% endif %}" : ""),
                     R"({{ '<|assistant|>\n' }})", "{{ eos_token }}");
}

static std::string granite(const char* system) {
  return concat(system,
                with_answer(R"({{ '<|start_of_role|>' + m.role + '<|end_of_role|>' + m.content + )"
                            R"('<|end_of_text|>\n' }})",
                            "{{ '<|start_of_role|>assistant<|end_of_role|>' }}"));
}
/// Adds a system message that names the date; `space` stands before its lines.
static std::string granite_dated(const char* space, const char* before_name) {
  return granite(concat("{% if messages[0].role != 'system' %}{{ '<|start_of_role|>system"
                        "<|end_of_role|>",
                        space, "Knowledge Cutoff Date: April 2024.\\n", space,
                        "Today\\'s Date: ' + strftime_now('%B %d, %Y') + '.", before_name,
                        "You are Granite, developed by IBM. You are a helpful AI assistant."
                        "<|end_of_text|>\\n' }}{% endif %}")
                     .c_str());
}

/// Thoughts are left out of answers before the last question.
static std::string qwen3() {
  return concat(
      R"({% set ns = namespace(question=messages|length - 1, found=false) %})"
      R"({% for m in messages[::-1] %}{% if not ns.found and m.role == 'user' and not )"
      R"((m.content.startswith('<tool_response>') and m.content.endswith('</tool_response>')) %})"
      R"({% set ns.question = messages|length - 1 - loop.index0 %}{% set ns.found = true %})"
      R"({% endif %}{% endfor %})",
      with_answer(
          R"({% set content = m.content %}{% if m.role == 'assistant' %}{% set thoughts = '' %})"
          R"({% if '</think>' in content %}{% set thoughts = content.split('</think>')[0])"
          R"(.rstrip('\n').split('<think>')[-1].strip('\n') %})"
          R"({% set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %})"
          R"({% if loop.index0 > ns.question and (loop.last or thoughts) %})"
          R"({% set content = '<think>\n' + thoughts + '\n</think>\n\n' + content.lstrip('\n') %})"
          R"({% endif %}{% endif %}{{ '<|im_start|>' + m.role + '\n' + content + )"
          R"('<|im_end|>\n' }})",
          R"({{ '<|im_start|>assistant\n' }}{% if enable_thinking is false %})"
          R"({{ '<think>\n\n</think>\n\n' }}{% endif %})"));
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

/// The published template does not end the turn of the system message, which switches thoughts on
/// and off.
static std::string smollm3() {
  return concat(
      kAside,
      R"({% set system = system | default('') %}{% set thinks = enable_thinking is not false %})",
      R"({% set overrides = '/system_override' in system %}{% set denies = '/no_think' in )"
      R"(system %})",
      R"({% set system = system.replace('/no_think', '') %}{% set asks = '/think' in system %})",
      R"({% if denies or asks %}{% set thinks = not denies %}{% endif %})",
      R"({% set system = system.replace('/think', '').replace('/system_override', '').rstrip() %})",
      R"({% if overrides %}{{ '<|im_start|>system\n' + system + '<|im_end|>\n' }}{% else %})",
      R"({{ '<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\nToday )"
      R"(Date: ' + )",
      R"(strftime_now('%d %B %Y') + '\nReasoning Mode: ' + ('/think' if thinks else )"
      R"('/no_think') + )",
      R"('\n\n## Custom Instructions\n\n' + (system or (')", kSmolLm3Thinking,
      R"(' if thinks else 'You are a helpful AI assistant named SmolLM, trained by Hugging )"
      R"(Face.')))",
      R"( + '\n\n' }}{% endif %}{% set start = '<|im_start|>assistant\n' + ('' if thinks else )",
      R"('<think>\n\n</think>\n') %})",
      with_answer(
          R"({% if m.role == 'assistant' %}{{ start + m.content.lstrip('\n') }}{% else %})"
          R"({{ '<|im_start|>' + m.role + '\n' + m.content }}{% endif %}{{ '<|im_end|>\n' }})",
          "{{ start }}"));
}

static std::string role_lines(const char* start, const char* end, const char* answer_end) {
  return start + with_answer(concat(R"({{ '<|' + m.role + '|>\n' + m.content }}{% if m.role == )",
                                    "'assistant' %}{{ ", answer_end, " }}{% else %}{{ ", end,
                                    " }}{% endif %}"),
                             R"({{ '<|assistant|>\n' }})");
}

static std::string deepseek_v2() {
  return "{{ bos_token }}" +
         with_answer(
             R"({% if m.role == 'user' %}{{ 'User: ' + m.content + '\n\n' }})"
             R"({% elif m.role == 'assistant' %}{{ 'Assistant: ' + m.content ~ eos_token }})"
             R"({% else %}{{ m.content + '\n\n' }}{% endif %})",
             "{{ 'Assistant:' }}");
}
static std::string deepseek_v3() {
  return "{{ bos_token }}" +
         with_answer(
             "{% if m.role == 'user' %}{{ '<｜User｜>' + m.content }}"
             "{% elif m.role == 'assistant' %}{{ '<｜Assistant｜>' + m.content + "
             "'<｜end▁of▁sentence｜>' }}{% else %}{{ m.content }}{% endif %}",
             "{{ '<｜Assistant｜>' }}");
}

static std::vector<NamedTemplate> made_templates() {
  static constexpr const char* kInst = "[INST] ";
  static constexpr const char* kSpacedAnswer = "' ' + m.content ~ eos_token";
  std::vector<NamedTemplate> all = {
      {"llama2", llama2()},
      {"llama3", llama3_after("")},
      {"llama3.1", llama3_dated("'26 Jul 2024'")},
      {"llama3.2", llama3_dated("strftime_now('%d %b %Y')")},
      {"mistral", mistral(kInst, " [/INST]", "m.content ~ eos_token")},
      {"mistral-v0.1", mistral(kInst, " [/INST]", "m.content ~ eos_token ~ ' '")},
      {"mistral-v1", mistral(" [INST] ", " [/INST]", kSpacedAnswer, "first")},
      {"mixtral-8x22b", mistral(kInst, "[/INST]", kSpacedAnswer, "last")},
      {"mistral-v3", mistral(kInst, "[/INST]", "' ' + m.content | trim ~ eos_token", "last")},
      {"mistral-v3-tekken", mistral("[INST]", "[/INST]", "m.content ~ eos_token", "last")},
      {"chatml", chatml_after("")},
      {"smollm3", smollm3()},
      {"smollm2",
       chatml_with("You are a helpful AI assistant named SmolLM, trained by Hugging Face")},
      {"qwen2", chatml_with("You are a helpful assistant.")},
      {"qwen2.5",
       chatml_with("You are Qwen, created by Alibaba Cloud. You are a helpful assistant.")},
      {"qwen3-instruct", chatml_after("")},
      {"qwen3", qwen3()},
      {"gemma", gemma("{% if messages[0].role == 'system' %}{{ raise_exception('System role not "
                      "supported') }}{% endif %}",
                      "")},
      {"gemma3",
       gemma(kAside, R"({{ system + '\n\n' if system is defined and loop.first else '' }})")},
      {"phi3", phi3("")},
      {"phi3.5", phi3("{% if m.role != 'system' or m.content %}")},
      {"zephyr", role_lines("", R"(eos_token ~ '\n')", R"(eos_token ~ '\n')")},
      {"olmo2",
       role_lines("{{ bos_token }}", R"('\n')", R"(eos_token ~ ('' if loop.last else '\n'))")},
      {"granite3", granite("")},
      {"granite3.1", granite_dated("", "\\n")},
      {"granite3.3-first", granite_dated(" ", " ")},
      {"deepseek-v2", deepseek_v2()},
      {"deepseek-v3", deepseek_v3()}};
  for (NamedTemplate& one : all) one.text = without_tools(one.name, one.text);
  return all;
}

const std::vector<NamedTemplate>& named_templates() {
  static const std::vector<NamedTemplate> all = made_templates();
  return all;
}

}  // namespace weft::text
