// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/scratch.h"
#include "weft/tokenizer.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path kReference = fs::path(WEFT_SOURCE_DIR) / "tests/reference";

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

TEST(Chat, KnowsNoTemplateWithASystemMessageOfItsOwn) {
  const Scratch scratch;
  fs::copy_file(kReference / "tokenizers/llama3/tokenizer.json", scratch.path("tokenizer.json"));
  const auto name_of = [&](const std::string& jinja) {
    scratch.write("chat_template.jinja", jinja);
    return Tokenizer::from_directory(scratch.root()).chat_template();
  };
  const std::string own = "{% if messages[0]['role'] != 'system' %}You are a pirate.{% endif %}";
  const std::string llama = "{{ '<|start_header_id|>' + message['role'] }}";
  const std::string chatml = "'<|im_start|>' + message['role'] + '\\n' <|im_end|>";
  const std::string zephyr = "'<|user|>\\n' + message['content'] + eos_token loop.last";
  const std::string olmo = "bos_token '<|user|>\\n' not loop.last";
  const std::string granite = "<|start_of_role|> <|end_of_text|>";
  const std::string dated = "<|start_header_id|> Cutting Knowledge Date: December 2023 ";
  const std::vector<std::pair<std::string, std::string>> forms = {
      {"llama3", llama}, {"chatml", chatml},    {"zephyr", zephyr},
      {"olmo2", olmo},   {"granite3", granite}, {"llama3.1", dated + "set system_message = \"\""}};
  for (const auto& [name, jinja] : forms) {
    EXPECT_EQ(name_of(jinja), name);
    EXPECT_EQ(name_of(own + jinja), "") << name;
  }
  EXPECT_EQ(name_of(dated + "set system_message = \"Be brief.\""), "");
  const std::string smol = "You are a helpful AI assistant named SmolLM, trained by Hugging Face";
  EXPECT_EQ(name_of("<|im_start|>system\\n" + smol + "<|im_end|>"), "smollm2");
  EXPECT_EQ(name_of("<|im_start|>system\\n" + smol + " and me<|im_end|>"), "");
}

/// Templates of published models after small changes.
TEST(Chat, KnowsNoTemplateThatIsNearlyOneThatItKnows) {
  const Scratch scratch;
  fs::copy_file(kReference / "tokenizers/llama3/tokenizer.json", scratch.path("tokenizer.json"));
  const auto name_of = [&](const std::string& jinja) {
    scratch.write("chat_template.jinja", jinja);
    return Tokenizer::from_directory(scratch.root()).chat_template();
  };
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
}

TEST(Chat, RefusesWhatATemplateDoesNotAllow) {
  const Tokenizer plain = Tokenizer::from_directory(kReference / "tokenizers/llama2");
  const std::vector<ChatMessage> twice = {{"user", "a"}, {"user", "b"}};
  const std::string error = error_of([&] { plain.chat(twice); });
  EXPECT_NE(error.find(" has no chat template, expected one of chat_templates()"), error.npos)
      << error;
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
