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
