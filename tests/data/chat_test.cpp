// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/scratch.h"
#include "weft/tokenizer.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path kReference = fs::path(WEFT_SOURCE_DIR) / "tests/reference";

std::string date_now(const char* form) {
  const std::time_t now = std::time(nullptr);
  char text[40];
  return {text, std::strftime(text, sizeof text, form, std::localtime(&now))};
}

TEST(Chat, EqualsThePublishedTemplates) {
  const Scratch scratch;
  fs::copy_file(kReference / "tokenizers/llama2/tokenizer.json", scratch.path("tokenizer.json"));
  std::ofstream(scratch.path("tokenizer_config.json"))
      << R"({"bos_token": "<s>", "eos_token": "</s>"})";
  const Tokenizer tokenizer = Tokenizer::from_directory(scratch.root());
  const json all = json::parse(std::ifstream(kReference / "chat.json"));
  EXPECT_EQ(all.size(), Tokenizer::chat_templates().size());
  for (const auto& [name, cases] : all.items()) {
    const Tokenizer chatting = tokenizer.with_chat_template(name);
    for (const json& c : cases) {
      std::vector<ChatMessage> messages;
      for (const json& m : c["messages"]) messages.push_back({m["role"], m["content"]});
      const ChatOptions options{.generation_prompt = c["generation_prompt"],
                                .date = "24 Nov 2026",
                                .thinking = c["thinking"]};
      if (c["text"].is_null()) {
        EXPECT_THROW(chatting.chat(messages, options), std::invalid_argument) << name;
      } else {
        EXPECT_EQ(chatting.chat(messages, options), c["text"]) << name;
      }
    }
  }
}

/// The name of the template that a model with this chat_template.jinja has.
static std::string name_of(const std::string& jinja) {
  const Scratch scratch;
  fs::copy_file(kReference / "tokenizers/llama3/tokenizer.json", scratch.path("tokenizer.json"));
  scratch.write("chat_template.jinja", jinja + "add_generation_prompt");
  return Tokenizer::from_directory(scratch.root()).chat_template();
}

TEST(Chat, KnowsNoTemplateWithASystemMessageOfItsOwn) {
  const std::string own = "{% if messages[0]['role'] != 'system' %}You are a pirate.{% endif %}";
  const std::string llama = "<|start_header_id|> message['content'] | trim + '<|eot_id|>'";
  const std::string chatml = "'<|im_start|>' + message['role'] + '\\n' <|im_end|>";
  const std::string zephyr = "'<|user|>\\n' + message['content'] + eos_token loop.last";
  const std::string olmo = "bos_token '<|user|>\\n' not loop.last";
  const std::string granite =
      "'<|start_of_role|>user<|end_of_role|>' + message['content'] <|end_of_text|>";
  const std::string dated = llama + " Cutting Knowledge Date: December 2023 ";
  const std::vector<std::pair<std::string, std::string>> forms = {
      {"llama3", llama}, {"chatml", chatml},    {"zephyr", zephyr},
      {"olmo2", olmo},   {"granite3", granite}, {"llama3.1", dated + "set system_message = \"\""}};
  for (const auto& [name, jinja] : forms) {
    EXPECT_EQ(name_of(jinja), name);
    EXPECT_EQ(name_of(own + jinja), "") << name;
  }
  const std::string granite31 =
      "<|start_of_role|> = \"Knowledge Cutoff Date: April 2024.\nToday's Date: \" + "
      "strftime_now('%B %d, %Y') + \".\nYou are Granite, developed by IBM.\" %}"
      "system_message + \" You are a helpful AI assistant.\" %}";
  EXPECT_EQ(name_of(granite31), "granite3.1");
  EXPECT_EQ(name_of("<|start_of_role|> = \" Knowledge Cutoff Date: April 2024.\n Today's Date: "
                    "\" + strftime_now('%B %d, %Y') + \". You are Granite, developed by IBM.\" %}"
                    "system_message + \" You are a helpful AI assistant.\" %}"),
            "granite3.3-first");
  EXPECT_EQ(name_of(granite + " Knowledge Cutoff Date: May 2025"), "");
  const std::string smol3 =
      "named SmolLM Knowledge Cutoff Date: June 2025 /system_override "
      "x.replace(\"/no_think\", \"\").replace(\"/think\", \"\").rstrip()";
  EXPECT_EQ(name_of(smol3), "smollm3");
  // The turn of the system message ends.
  EXPECT_EQ(name_of(smol3 + "{%- endif -%}\n  {{- \"<|im_end|>\\n\" -}}"), "");
  EXPECT_EQ(name_of(dated + "set system_message = \"Be brief.\""), "");
  // Of models that write the same marks otherwise: Llama Guard, Hermes 3, LLaMA-Pro.
  EXPECT_EQ(name_of("<|start_header_id|> content.strip() <|eot_id|>"), "");
  const std::string qwen = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>";
  EXPECT_EQ(name_of(qwen), "qwen2");
  EXPECT_EQ(name_of("{{bos_token}}" + qwen), "");
  EXPECT_EQ(name_of(zephyr + "'<|user|>\n' + message['content'] }}"), "");
  const std::string smol = "You are a helpful AI assistant named SmolLM, trained by Hugging Face";
  EXPECT_EQ(name_of("<|im_start|>system\\n" + smol + "<|im_end|>"), "smollm2");
  EXPECT_EQ(name_of("<|im_start|>system\\n" + smol + " and me<|im_end|>"), "");
}

/// Templates of published models after small changes.
TEST(Chat, KnowsNoTemplateThatIsNearlyOneThatItKnows) {
  const auto qwen = [](const std::string& system) {
    return "{%- if tools %}<tool_call>{{- '" + system +
           "' }}{%- else %}{%- if messages[0]['role'] == 'system' %}{{- '<|im_start|>system\\n' + "
           "messages[0]['content'] + '<|im_end|>\\n' }}{%- else %}{{- '<|im_start|>system\\n" +
           system + "<|im_end|>\\n' }}{%- endif %}{%- endif %}{%- for message in messages %}{{- " +
           "'<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' }}";
  };
  const std::string own = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";
  EXPECT_EQ(name_of(qwen(own)), "qwen2.5");
  EXPECT_EQ(name_of(qwen(own + " Answer briefly.")), "");
  EXPECT_EQ(name_of(qwen("Please reason step by step.")), "");
  const auto deepseek = [](const std::string& line_ends, const std::string& end) {
    return "{{ bos_token }}{% for message in messages %}{{ 'User: ' + message['content'] + '" +
           line_ends + "' }}{{ 'Assistant: ' + message['content']" + end + " }}{{ 'Assistant:' }}";
  };
  EXPECT_EQ(name_of(deepseek("\\n\\n", " + eos_token")), "deepseek-v2");
  EXPECT_EQ(name_of(deepseek("\n\n", " + eos_token")), "deepseek-v2");
  EXPECT_EQ(name_of(deepseek("\\n", " + eos_token")), "");
  EXPECT_EQ(name_of(deepseek("\\n\\n", " + '\\n'")), "");
  const std::string qwen3 = "<|im_start|> enable_thinking is false last_query_index ";
  EXPECT_EQ(name_of(qwen3 + "loop.last or (not loop.last and reasoning_content)"), "qwen3");
  EXPECT_EQ(name_of(qwen3 + "reasoning_content"), "");
  const std::string llama2 = "<<SYS>> bos_token + '[INST] ' + ";
  EXPECT_EQ(name_of(llama2 + "content"), "llama2");
  EXPECT_EQ(name_of(llama2 + "message['content']"), "");
  const std::string tools = "'<|im_start|>' + message.role + '\\n' <tool_call>";
  EXPECT_EQ(name_of(tools), "qwen3-instruct");
  EXPECT_EQ(name_of("{{bos_token}}" + tools), "");
}

TEST(Chat, NamesTodayInTheFormOfTheTemplate) {
  const Tokenizer plain = Tokenizer::from_directory(kReference / "tokenizers/llama2");
  const std::vector<ChatMessage> messages = {{"user", "a"}};
  const std::pair<const char*, const char*> forms[] = {
      {"llama3.2", "%d %b %Y"}, {"granite3.1", "%B %d, %Y"}, {"smollm3", "%d %B %Y"}};
  for (const auto& [name, form] : forms) {
    std::string before, text;
    do {  // until no midnight is between
      before = date_now(form);
      text = plain.with_chat_template(name).chat(messages);
    } while (before != date_now(form));
    EXPECT_NE(text.find(before), text.npos) << name << '\n' << text;
  }
}

TEST(Chat, RefusesWhatATemplateDoesNotAllow) {
  const Tokenizer plain = Tokenizer::from_directory(kReference / "tokenizers/llama2");
  const std::vector<ChatMessage> twice = {{"user", "a"}, {"user", "b"}};
  const std::string error = error_of([&] { plain.chat(twice); });
  EXPECT_TRUE(has(error, " has no chat template, expected one of chat_templates()"));
  const Tokenizer gemma = plain.with_chat_template("gemma");
  EXPECT_EQ(error_of([&] { gemma.chat(twice); }),
            "chat: message 1 has the role \"user\", expected assistant; they take turns in the "
            "template gemma");
  EXPECT_EQ(error_of([&] { gemma.chat({}); }), "chat: there are 0 messages, expected at least 1");
  const std::vector<ChatMessage> tool = {{"tool", "a"}};
  EXPECT_EQ(error_of([&] { gemma.chat(tool); }),
            "chat: message 0 has the role \"tool\", expected system, user or assistant");
  EXPECT_TRUE(error_of([&] {
                plain.with_chat_template("x");
              }).starts_with("chat: the template is \"x\", expected one of llama2, llama3,"));
}

}  // namespace
}  // namespace weft
