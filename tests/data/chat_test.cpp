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

/// A tokenizer of Llama 3 with files of a model's directory next to it.
static Tokenizer tokenizer_with(const std::vector<std::pair<std::string, std::string>>& files) {
  const Scratch scratch;
  fs::copy_file(kReference / "tokenizers/llama3/tokenizer.json", scratch.path("tokenizer.json"));
  fs::create_directories(scratch.path("additional_chat_templates"));
  for (const auto& [name, text] : files) scratch.write(name, text);
  return Tokenizer::from_directory(scratch.root());
}

static std::string said_by(const std::string& jinja) {
  return tokenizer_with({{"chat_template.jinja", jinja}})
      .chat(std::vector<ChatMessage>{{"user", " b "}});
}

/// Each was ignored when templates were recognized by what they contain.
TEST(Chat, RendersEditsOfATemplate) {
  const std::string start = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m";
  const std::string end =
      "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
  EXPECT_EQ(said_by("You will be asked.\n" + start + "['content'] + '<|im_end|>\n' }}" + end),
            "You will be asked.\n<|im_start|>user\n b <|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(said_by(start + "['content'] | trim + '<|im_end|>\n' }}" + end),
            "<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(said_by(start + "['content'] + '<|im_end|>' }}" + end),
            "<|im_start|>user\n b <|im_end|><|im_start|>assistant\n");
}

TEST(Chat, ReadsTemplatesAsTransformersDoes) {
  const std::pair<std::string, std::string> config = {
      "tokenizer_config.json",
      R"({"eos_token": "<|eot_id|>", "chat_template": [{"name": "default", "template": )"
      R"("D{{ eos_token }}"},
          {"name": "tool_use", "template": "T{{ tools | length }}"}]})"};
  const std::string one = R"([{"role": "user", "content": "a"}])";
  const Tokenizer listed =
      tokenizer_with({config, {"chat_template.json", R"({"chat_template": "J"})"}});
  EXPECT_EQ(listed.chat_template(), "default");
  EXPECT_EQ(listed.apply_chat_template(one), "D<|eot_id|>");
  EXPECT_EQ(listed.apply_chat_template(one, R"({"tools": [1, 2]})"), "T2");
  EXPECT_EQ(listed.apply_chat_template(one, R"({"tools": null})"), "D<|eot_id|>");
  EXPECT_EQ(listed.with_chat_template("tool_use").apply_chat_template(one, R"({"tools": []})"),
            "T0");
  EXPECT_EQ(listed.with_chat_template("{{ a }}").apply_chat_template(one, R"({"a": 1})"), "1");
  const Tokenizer filed = tokenizer_with(
      {config, {"chat_template.jinja", "F"}, {"additional_chat_templates/rag.jinja", "R"}});
  EXPECT_EQ(filed.apply_chat_template(one, R"({"tools": [1]})"), "F");
  EXPECT_EQ(filed.with_chat_template("rag").apply_chat_template(one), "R");
  EXPECT_EQ(tokenizer_with({{"chat_template.json", R"({"chat_template": "J"})"}})
                .apply_chat_template(one),
            "J");
}

TEST(Chat, GivesMessagesAsTransformersDoes) {
  const Tokenizer tokenizer = tokenizer_with(
      {{"chat_template.jinja", "{{ messages | tojson }}{{ add_generation_prompt }}"}});
  EXPECT_EQ(
      tokenizer.apply_chat_template(
          R"([{"role": "assistant", "content": null, "reasoning": "so", "z": [1.0, )"
          R"({"\u00fc": true}]}])"),
      R"([{"thinking": "so", "role": "assistant", "reasoning": "so", "z": [1.0, {"ü": true}], )"
      R"("reasoning_content": "so"}]False)");
}

TEST(Chat, EndsAtTheTokenThatTheTemplateWritesAfterAnAnswer) {
  const auto ends = [](const std::string& jinja) {
    const Tokenizer tokenizer = tokenizer_with({{"chat_template.jinja", jinja}});
    return tokenizer.end_ids() == std::vector<int64_t>{tokenizer.id("<|eot_id|>").value()};
  };
  EXPECT_TRUE(ends("{% for m in messages %}{{ m.content }} <|eot_id|>\n{% endfor %}"));
  EXPECT_FALSE(ends("{% for m in messages %}{{ m.content }} and <|eot_id|>\n{% endfor %}"));
  EXPECT_FALSE(ends("{{ raise_exception('no') }}<|eot_id|>"));
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
            "chat: the template refuses the messages: Conversation roles must alternate "
            "user/assistant/user/assistant/...");
  EXPECT_EQ(error_of([&] { gemma.chat({}); }), "chat: there are 0 messages, expected at least 1");
  const std::vector<ChatMessage> system = {{"system", "a"}, {"user", "b"}};
  EXPECT_EQ(error_of([&] { gemma.chat(system); }),
            "chat: the template refuses the messages: System role not supported");
  const auto error_for = [&](const char* messages, const char* variables) {
    return error_of([&] { gemma.apply_chat_template(messages, variables); });
  };
  EXPECT_EQ(error_for("[1]", "{}"), "chat: message 0 is a int, expected a dict");
  EXPECT_EQ(error_for("{}", "{}"), "chat: the messages are a dict, expected a list");
  EXPECT_EQ(error_for("[{}]", "[]"), "chat: the variables are a list, expected an object");
  EXPECT_EQ(error_for("[{}]", R"({"messages": 1})"),
            "chat: a variable is messages, expected another name");
  EXPECT_EQ(error_for("[", "{}"), "chat: the messages: the text is not JSON, expected JSON");
  EXPECT_EQ(error_for("[18446744073709551615]", "{}"),
            "chat: the messages: a number is 18446744073709551615, expected at most "
            "9223372036854775807");
  EXPECT_EQ(error_for((std::string(300, '[') + std::string(300, ']')).c_str(), "{}"),
            "chat: the messages: the text is more than 200 levels deep, expected fewer");
  const Tokenizer unknown = tokenizer_with({{"chat_template.jinja", "a\n{{ b | shout }}"}});
  EXPECT_EQ(unknown.chat_template(), "default");
  EXPECT_TRUE(error_of([&] { unknown.chat(twice); })
                  .ends_with(" is not one that weft reads, expected another one; chat "
                             "template: line "
                             "2: the filter is \"shout\", expected one that weft has"));
  EXPECT_EQ(error_of([&] { plain.with_chat_template("{{ 'a' }"); }),
            "chat template: line 1: a tag has a } that closes nothing, expected none");
  EXPECT_TRUE(error_of([&] {
                plain.with_chat_template("x");
              }).starts_with("chat: the template is \"x\", expected one of llama2, llama3,"));
}

TEST(Chat, NamedTemplatesRefuseTools) {
  const Tokenizer plain = Tokenizer::from_directory(WEFT_SOURCE_DIR "/tests/reference/datasets");
  for (const std::string& name : Tokenizer::chat_templates()) {
    const Tokenizer named = plain.with_chat_template(name);
    const std::string rest = ", expected none: weft has the template " + name +
                             " without tools; take the template of "
                             "the model";
    const std::string user = R"({"role": "user", "content": "a"})";
    const auto error = [&](const std::string& more, const std::string& variables = "{}") {
      return error_of([&] { named.apply_chat_template("[" + user + more + "]", variables); });
    };
    EXPECT_NE(error(R"(, {"role": "assistant", "content": "", "tool_calls": [{"id": 1}]})")
                  .find("a message has tool_calls" + rest),
              std::string::npos)
        << name;
    EXPECT_NE(error(R"(, {"role": "tool", "content": "4"})").find("the role tool" + rest),
              std::string::npos)
        << name;
    EXPECT_NE(error("", R"({"tools": [{"name": "f"}]})").find("tools are given" + rest),
              std::string::npos)
        << name;
    EXPECT_EQ(error("", R"({"tools": []})"), "nothing") << name;
  }
}

}  // namespace
}  // namespace weft
