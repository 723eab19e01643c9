// SPDX-License-Identifier: Apache-2.0
#include "weft/tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/scratch.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Ids = std::vector<int64_t>;

const fs::path kReference = fs::path(WEFT_SOURCE_DIR) / "tests/reference";

json read(const fs::path& path) { return json::parse(std::ifstream(path)); }

std::vector<std::string> families() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kReference / "tokenizers")) {
    if (entry.is_directory()) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// A family of which tests/reference has a tokenizer, trained by a package in its settings.
class Family : public testing::TestWithParam<std::string> {
 protected:
  Tokenizer tokenizer = Tokenizer::from_directory(kReference / "tokenizers" / GetParam());
  json expected = read(kReference / "tokenizers/expected.json")[GetParam()];
};

std::string streamed(const Tokenizer& tokenizer, const Ids& ids, bool skip_special) {
  TextStream stream(tokenizer, skip_special);
  std::string text;
  for (const int64_t id : ids) text += stream.push(id);
  return text + stream.finish();
}

class Tokenizers : public Family {};

TEST_P(Tokenizers, HaveTheIdsAndTextsOfThePackages) {
  ASSERT_GE(expected["cases"].size(), 10u);
  for (const json& c : expected["cases"]) {
    const auto ids = c["ids"].get<Ids>();
    EXPECT_EQ(tokenizer.encode(c["text"].get<std::string>()), ids);
    EXPECT_EQ(tokenizer.decode(ids), c["skipped"]);
    EXPECT_EQ(tokenizer.decode(ids, false), c["kept"]);
    EXPECT_EQ(streamed(tokenizer, ids, false), c["kept"]);
  }
  for (const json& c : expected["drawn"]) {
    EXPECT_EQ(tokenizer.decode(c["ids"].get<Ids>(), false), c["text"]);
  }
}

TEST_P(Tokenizers, KeepNoWordTooLong) {
  // The cache changes no ids, whatever it holds.
  for (const json& c : expected["cases"]) {
    const auto text = c["text"].get<std::string>();
    EXPECT_EQ(tokenizer.encode(text), tokenizer.encode(text));
  }
}

INSTANTIATE_TEST_SUITE_P(Reference, Tokenizers, testing::ValuesIn(families()),
                         [](const auto& info) { return info.param; });

Tokenizer named(const std::string& family) {
  return Tokenizer::from_directory(kReference / "tokenizers" / family);
}

TEST(Tokenizer, StreamsWholeCharacters) {
  const Tokenizer tokenizer = named("gpt2");
  const Ids ids = tokenizer.encode("a\U0001f600b", false);
  ASSERT_GT(ids.size(), 3u);  // the emoji is several tokens
  TextStream stream(tokenizer);
  for (const int64_t id : ids) {
    const std::string text = stream.push(id);
    EXPECT_TRUE(text.empty() || text == "a" || text == "\U0001f600" || text == "b" ||
                text == "\U0001f600b")
        << text;
  }
  EXPECT_EQ(stream.push(ids[1]), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
}

TEST(Tokenizer, ReadsInvalidUtf8AsReplacementCharacters) {
  const Tokenizer tokenizer = named("qwen2");
  EXPECT_EQ(tokenizer.encode("a\xF0\x9F\x98 b\xFFz\xC3"),
            tokenizer.encode("a\uFFFD b\uFFFDz\uFFFD"));
}

TEST(Tokenizer, KnowsItsTokens) {
  const Tokenizer tokenizer = named("llama3");
  EXPECT_EQ(tokenizer.id("<|eot_id|>"), 2);
  EXPECT_EQ(tokenizer.token(2), "<|eot_id|>");
  EXPECT_TRUE(tokenizer.is_special(2));
  EXPECT_FALSE(tokenizer.is_special(3));
  EXPECT_EQ(tokenizer.id("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer.encode("").size(), 1u);
  EXPECT_EQ(tokenizer.encode("", false).size(), 0u);
  EXPECT_EQ(error_of([&] { tokenizer.decode(Ids{tokenizer.size()}); }),
            "decode: the id is 700, expected 0 to 699");
}

TEST(Tokenizer, EncodesOnSeveralThreads) {
  const Tokenizer tokenizer = named("bert");
  const auto text =
      read(kReference / "tokenizers/expected.json")["bert"]["cases"][4]["text"].get<std::string>();
  const Ids expected = tokenizer.encode(text);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 20; ++j) EXPECT_EQ(tokenizer.encode(text), expected);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Tokenizer, ReadsTheFilesNextToIt) {
  const Scratch scratch;
  const fs::path from = kReference / "tokenizers/llama3/tokenizer.json";
  fs::copy_file(from, scratch.path("tokenizer.json"));
  std::ofstream(scratch.path("tokenizer_config.json"))
      << R"({"bos_token": {"content": "<|begin_of_text|>"}, "eos_token": "<|end_of_text|>",
             "chat_template": "{{ '<|start_header_id|>' }}"})";
  std::ofstream(scratch.path("generation_config.json")) << R"({"eos_token_id": [1, 7]})";
  const Tokenizer tokenizer = Tokenizer::from_directory(scratch.root());
  EXPECT_EQ(tokenizer.bos(), 0);
  EXPECT_EQ(tokenizer.eos(), 1);
  EXPECT_EQ(tokenizer.chat_template(), "llama3");
  EXPECT_EQ(tokenizer.end_ids(), (Ids{1, 2, 7}));
}

TEST(Tokenizer, RefusesBrokenFiles) {
  const Scratch scratch;
  const json good = read(kReference / "tokenizers/gpt2/tokenizer.json");
  const auto refused = [&](const std::string& pointer, const json& value) {
    json changed = good;
    changed[json::json_pointer(pointer)] = value;
    const std::string path = scratch.path("tokenizer.json");
    std::ofstream(path) << changed;
    const std::string error = error_of([&] { Tokenizer::from_file(path); });
    return error.substr(error.find("json") + 6);
  };
  EXPECT_EQ(refused("/model/type", "Unigram"),
            "model.type is \"Unigram\", expected BPE with the pre-tokenizer ByteLevel");
  EXPECT_EQ(refused("/model/merges/0", 3), "model.merges[0] is 3, expected two pieces");
  EXPECT_EQ(refused("/model/merges/0", "a \u4e00"),
            "merge 0 has the piece \"\u4e00\", which is missing in the vocabulary");
  EXPECT_EQ(refused("/model/vocab/a", -1), "the id of \"a\" is -1, expected 0 to 7999999");
  EXPECT_EQ(refused("/model/vocab/a", int64_t{1} << 40),
            "the id of \"a\" is 1099511627776, expected 0 to 7999999");
  EXPECT_EQ(refused("/model/dropout", 0.1), "model.dropout is 0.1, expected nothing");
  EXPECT_EQ(refused("/normalizer", {{"type", "Precompiled"}}),
            "normalizer.type is \"Precompiled\", which is not supported");
  EXPECT_EQ(refused("/added_tokens/0/id", "x"),
            "added_tokens[0].id is \"x\", expected a whole number");
  EXPECT_EQ(refused("/decoder/type", "CTC"), "decoder.type is \"CTC\", which is not supported");
  EXPECT_EQ(refused("/model", nullptr), "model is missing");
  EXPECT_EQ(refused("/pre_tokenizer", json::parse(R"({"type": "Split", "behavior": "Isolated",
                    "pattern": {"Regex": "(a"}})")),
            "pre_tokenizer.pattern: the pattern \"(a\" does not compile: missing closing "
            "parenthesis");
}

/// Every change of a good file is read or refused with a sentence.
TEST(Tokenizer, SurvivesDamagedFiles) {
  const Scratch scratch;
  std::mt19937 random(3);
  for (const std::string family : {"gpt2", "llama2", "bert", "sentencepiece_bpe"}) {
    const bool is_json = !family.starts_with("sentence");
    const std::string name = is_json ? "tokenizer.json" : "tokenizer.model";
    std::ifstream from(kReference / "tokenizers" / family / name);
    const std::string good(std::istreambuf_iterator<char>(from), {});
    for (int i = 0; i < 60; ++i) {
      std::string bad = good;
      const int changes = 1 + static_cast<int>(random() % 4);
      for (int j = 0; j < changes; ++j) {
        const size_t at = random() % bad.size();
        static constexpr std::string_view marks = "\"[]{},:0a\\";
        switch (random() % 3) {
          case 0:
            bad[at] = static_cast<char>(random());
            break;
          case 1:
            bad[at] = marks[random() % marks.size()];
            break;
          default:
            bad.resize(at + 1);
        }
      }
      const std::string path = scratch.path(name);
      std::ofstream(path) << bad;
      try {
        const Tokenizer tokenizer = Tokenizer::from_file(path);
        tokenizer.decode(tokenizer.encode("Some text, \U0001f600 1234\n"));
      } catch (const std::invalid_argument& error) {
        EXPECT_TRUE(std::string(error.what()).starts_with("tokenizer: ")) << error.what();
      }
    }
  }
}

class Chat : public testing::Test {};

TEST(Chat, EqualsThePublishedTemplates) {
  const Scratch scratch;
  fs::copy_file(kReference / "tokenizers/llama2/tokenizer.json", scratch.path("tokenizer.json"));
  std::ofstream(scratch.path("tokenizer_config.json"))
      << R"({"bos_token": "<s>", "eos_token": "</s>"})";
  const Tokenizer tokenizer = Tokenizer::from_directory(scratch.root());
  const json all = read(kReference / "chat.json");
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
  const Tokenizer plain = named("llama2");
  const std::vector<ChatMessage> twice = {{"user", "a"}, {"user", "b"}};
  const std::string error = error_of([&] { plain.chat(twice); });
  EXPECT_NE(error.find(" has no chat template; choose one by its name"), error.npos) << error;
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
