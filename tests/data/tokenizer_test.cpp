// SPDX-License-Identifier: Apache-2.0
#include "weft/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
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

std::string streamed(const Tokenizer& tokenizer, const Ids& ids, bool skip_special) {
  TextStream stream(tokenizer, skip_special);
  std::string text;
  for (const int64_t id : ids) text += stream.push(id);
  return text + stream.finish();
}

Tokenizer named(const std::string& family) {
  return Tokenizer::from_directory(kReference / "tokenizers" / family);
}

TEST(Tokenizer, HasTheIdsAndTextsOfThePackages) {
  const json all = read(kReference / "tokenizers/expected.json");
  ASSERT_EQ(all.size(), families().size());
  for (const std::string& family : families()) {
    SCOPED_TRACE(family);
    const Tokenizer tokenizer = named(family);
    for (const json& c : all[family]["cases"]) {
      const auto ids = c["ids"].get<Ids>();
      EXPECT_EQ(tokenizer.encode(c["text"].get<std::string>()), ids);
      EXPECT_EQ(tokenizer.decode(ids), c["skipped"]);
      EXPECT_EQ(tokenizer.decode(ids, false), c["kept"]);
      EXPECT_EQ(streamed(tokenizer, ids, false), c["kept"]);
    }
    for (const json& c : all[family]["drawn"]) {
      EXPECT_EQ(tokenizer.decode(c["ids"].get<Ids>(), false), c["text"]);
    }
  }
}

TEST(Tokenizer, DecodesARunOfBytesInLinearTime) {
  const Tokenizer tokenizer = named("llama2");
  Ids ids;
  std::string text;
  for (int i = 0; i < 200000; ++i) {
    for (const char* byte : {"<0xC3>", "<0xA9>"}) ids.push_back(tokenizer.id(byte).value());
    text += "\u00e9";
  }
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(tokenizer.decode(ids), text);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
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

TEST(Tokenizer, ComposesSyllablesOnly) {
  const Tokenizer tokenizer = named("qwen2");
  const auto composed = [&](const std::string& text) {
    return tokenizer.decode(tokenizer.encode(text));
  };
  EXPECT_EQ(composed("\u1112\u1161\u11AB e\u0301"), "\uD55C \u00E9");
  // U+11A7, just before the trailing consonants, is no consonant.
  EXPECT_EQ(composed("\uCE04\u11A7\u1112\u1161\u11A7\u11AB"), "\uCE04\u11A7\uD558\u11A7\u11AB");
}

TEST(Tokenizer, ReadsTheFilesNextToIt) {
  const Scratch scratch;
  const fs::path from = kReference / "tokenizers/llama3/tokenizer.json";
  fs::copy_file(from, scratch.path("tokenizer.json"));
  std::ofstream(scratch.path("tokenizer_config.json"))
      << R"({"bos_token": {"content": "<|begin_of_text|>"}, "eos_token": "<|end_of_text|>",
             "chat_template": "{% for m in messages %}{{ m.content }}<|eot_id|>{% endfor %}"})";
  std::ofstream(scratch.path("generation_config.json")) << R"({"eos_token_id": [1, 7]})";
  const Tokenizer tokenizer = Tokenizer::from_directory(scratch.root());
  EXPECT_EQ(tokenizer.bos(), 0);
  EXPECT_EQ(tokenizer.eos(), 1);
  EXPECT_EQ(tokenizer.chat_template(), "default");
  EXPECT_EQ(tokenizer.end_ids(), (Ids{1, 2, 7}));
}

TEST(Tokenizer, NamesTheFileAndThePatternThatExceedItsLimits) {
  const Scratch scratch;
  scratch.write("tokenizer.json",
                R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "pre_tokenizer": )"
                R"({"type": "Split", "pattern": {"Regex": "(a+)+$|((a+)+)+b"}, "behavior": )"
                R"("Isolated"}})");
  const Tokenizer tokenizer = Tokenizer::from_file(scratch.path("tokenizer.json"));
  try {
    (void)tokenizer.encode(std::string(60, 'a') + "c");
    FAIL() << "no error";
  } catch (const std::runtime_error& error) {
    const std::string text = error.what();
    EXPECT_TRUE(text.starts_with("pcre2_match: the pattern \"(a+)+$|((a+)+)+b\" of tokenizer: "));
    EXPECT_NE(text.find("tokenizer.json: pre_tokenizer.pattern"), text.npos) << text;
  }
}

/// The package tokenizers does the same.
TEST(Tokenizer, TakesTheIdsOfAddedTokensFromTheVocabulary) {
  const Scratch scratch;
  scratch.write("tokenizer.json",
                R"({"model": {"type": "BPE", "vocab": {"a": 0, "<x>": 1}, "merges": []}, )"
                R"("added_tokens": [{"id": 5, "content": "<x>", "special": true}]})");
  const Tokenizer tokenizer = Tokenizer::from_file(scratch.path("tokenizer.json"));
  EXPECT_EQ(tokenizer.encode("a<x>"), (Ids{0, 1}));
  EXPECT_EQ(tokenizer.size(), 2);
}

/// Without generation_config.json, transformers takes the ids from the model's config.
TEST(Tokenizer, EndsAtTheIdsOfTheModelsConfig) {
  const auto ends = [](const char* config, const char* generation = nullptr) {
    const Scratch scratch;
    fs::copy_file(kReference / "tokenizers/llama3/tokenizer.json", scratch.path("tokenizer.json"));
    scratch.write("config.json", config);
    if (generation) scratch.write("generation_config.json", generation);
    return Tokenizer::from_directory(scratch.root()).end_ids();
  };
  EXPECT_EQ(ends(R"({"eos_token_id": 5})"), (Ids{5}));
  EXPECT_EQ(ends(R"({"eos_token_id": [9, 5]})"), (Ids{5, 9}));
  EXPECT_EQ(ends(R"({"eos_token_id": null})"), Ids{});
  EXPECT_EQ(ends("{}"), Ids{});
  EXPECT_EQ(ends(R"({"text_config": {"eos_token_id": [9, 5]}})"), (Ids{5, 9}));
  EXPECT_EQ(ends(R"({"eos_token_id": 4, "text_config": {"eos_token_id": 5}})"), (Ids{4}));
  EXPECT_EQ(ends(R"({"eos_token_id": 5})", R"({"eos_token_id": 6})"), (Ids{6}));
  EXPECT_EQ(ends(R"({"eos_token_id": 5})", "{}"), Ids{});
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
            "model.vocab is an object, expected an array of pieces and their scores");
  EXPECT_EQ(refused("/model/merges/0", 3), "model.merges[0] is 3, expected two pieces");
  EXPECT_EQ(refused("/model/merges/0", "a \u4e00"),
            "merge 0 has the piece \"\u4e00\", expected one of the vocabulary");
  EXPECT_EQ(refused("/model/vocab/a", -1), "the id of \"a\" is -1, expected 0 to 7999999");
  EXPECT_EQ(refused("/model/vocab/a", int64_t{1} << 40),
            "the id of \"a\" is 1099511627776, expected 0 to 7999999");
  EXPECT_EQ(refused("/model/dropout", 0.1), "model.dropout is 0.1, expected nothing");
  EXPECT_EQ(refused("/normalizer", {{"type", "Nmt2"}}),
            "normalizer.type is \"Nmt2\", expected one that weft reads");
  EXPECT_EQ(refused("/added_tokens/0/id", "x"),
            "added_tokens[0].id is \"x\", expected a whole number");
  EXPECT_EQ(refused("/decoder/type", "CTC"),
            "decoder.type is \"CTC\", expected one that weft reads");
  EXPECT_EQ(refused("/model", nullptr), "model is missing, expected a value");
  EXPECT_EQ(refused("/pre_tokenizer", json::parse(R"({"type": "Split", "behavior": "Isolated",
                    "pattern": {"Regex": "(a"}})")),
            "pre_tokenizer.pattern: the pattern is \"(a\", expected a regular expression; missing "
            "closing parenthesis");
}

/// A good file of characters with merges of "▁", changed at some places.
json characters(std::initializer_list<std::pair<const char*, json>> changes) {
  json file = json::parse(R"({"model": {"type": "BPE", "unk_token": "?", "merges": [["▁", "▁"]],
      "vocab": {"?": 0, "▁": 1, "▁▁": 2, "a": 3, "b": 4}}, "added_tokens": []})");
  for (const auto& [pointer, value] : changes) file[json::json_pointer(pointer)] = value;
  return file;
}

Tokenizer read_of(const Scratch& scratch, const json& file) {
  return Tokenizer::from_file(scratch.write("tokenizer.json", file.dump()));
}

TEST(Tokenizer, MergesAcrossACharacterWithoutAToken) {
  const Scratch scratch;
  json file = characters({});
  EXPECT_EQ(read_of(scratch, file).encode("▁x▁"), (Ids{1, 0, 1}));
  file["model"].erase("unk_token");
  EXPECT_EQ(read_of(scratch, file).encode("▁x▁"), (Ids{2}));
}

TEST(Tokenizer, TakesWhiteSpaceIntoOneToken) {
  const Scratch scratch;
  const auto added = [](int id, const char* content, bool strips) {
    return json{{"id", id}, {"content", content}, {"lstrip", strips}, {"rstrip", strips}};
  };
  const Tokenizer both =
      read_of(scratch, characters({{"/added_tokens", json::array({added(5, " ", true)})}}));
  EXPECT_EQ(both.encode("    a"), (Ids{5, 3}));
  EXPECT_EQ(both.encode("a   b"), (Ids{3, 5, 4}));
  const json marks = json::array({added(5, "<u>", true), added(6, "\n", false)});
  const Tokenizer other = read_of(scratch, characters({{"/added_tokens", marks}}));
  EXPECT_EQ(other.encode("<u>\n\na"), (Ids{5, 6, 6, 3}));
}

/// The ids of the characters that a split by the pattern leaves.
static Ids split_and_encoded(const char* pattern, const json& vocab, const std::string& text) {
  const Scratch scratch;
  json split = {{"type", "Split"}, {"behavior", "Removed"}, {"pattern", {{"Regex", pattern}}}};
  return read_of(scratch, characters({{"/pre_tokenizer", split},
                                      {"/model/vocab", vocab},
                                      {"/model/unk_token", "a"},
                                      {"/model/merges", json::array()}}))
      .encode(text);
}

TEST(Tokenizer, ReadsPatternsAsOnigurumaDoes) {
  const auto words = [](const char* pattern, const char* text) {
    const json vocab = {{"a", 0}, {" ", 1}, {"\n", 2}, {"b", 3}};
    return split_and_encoded(pattern, vocab, text);
  };
  EXPECT_EQ(words("\\s+$", "a  \nb"), (Ids{0, 2, 3}));
  EXPECT_EQ(words("^b", "a\nb"), (Ids{0, 2}));
  EXPECT_EQ(words("(?m)\\n.b", "a\n\nb"), (Ids{0}));
  EXPECT_EQ(words("(?m:\\n.)b", "a\n\nb"), (Ids{0}));
  EXPECT_EQ(words("[[:alpha:]]|[]\\[]", "a b"), (Ids{1}));
  const auto refusal = [&](const char* pattern) {
    const std::string error = error_of([&] { words(pattern, ""); });
    return error.substr(std::min(error.find("expected"), error.size()));
  };
  EXPECT_EQ(refusal("\\h+"), "expected none with \\h or \\H; write [0-9a-fA-F]");
  EXPECT_EQ(refusal("[a[bc]]"),
            "expected none with a class inside a class; write \\[ for the character");
  EXPECT_EQ(refusal("[[:^alpha:]]"), "expected none with [:^alpha:]");
  EXPECT_EQ(refusal("\\bb"), "expected none with \\b or \\B");
  EXPECT_EQ(refusal("[\\Wa]"),
            "expected none with \\W in a class; write a class that begins with ^");
  EXPECT_EQ(refusal("a*"), "expected one that cannot match nothing");
}

/// Follows the package tokenizers 0.23: its \w matches marks, and alone also "\u00b2".
TEST(Tokenizer, MatchesTheWordsOfOniguruma) {
  const auto kept = [](const char* pattern) {
    json vocab;
    const std::vector<std::string> all = {"a", "\u0301", "\u203f", "\u200d", "\u00b2",
                                          "$", "\u24d0", "\u0661", "_"};
    std::string text;
    for (const std::string& one : all) {
      vocab[one] = vocab.size();
      text += one;
    }
    return split_and_encoded(pattern, vocab, text);
  };
  EXPECT_EQ(kept("\\w"), (Ids{3, 5}));
  EXPECT_EQ(kept("\\W"), (Ids{0, 1, 2, 4, 6, 7, 8}));
  EXPECT_EQ(kept("[\\w]"), (Ids{3, 4, 5}));
  EXPECT_EQ(kept("[[:alpha:]]"), (Ids{1, 2, 3, 4, 5, 7, 8}));
  EXPECT_EQ(kept("[[:alnum:]]"), (Ids{1, 2, 3, 4, 5, 8}));
  EXPECT_EQ(kept("[[:punct:]]"), (Ids{0, 1, 3, 4, 7}));
}

TEST(Tokenizer, RefusesTooManySteps) {
  const Scratch scratch;
  const auto error_with = [&](const char* place, const char* steps, const json& step, size_t many) {
    const json sequence = {{"type", "Sequence"}, {steps, json::array_t(many, step)}};
    const std::string error = error_of([&] { read_of(scratch, characters({{place, sequence}})); });
    return error.substr(std::min(error.find("json: "), error.size()));
  };
  const json cut = {{"type", "WhitespaceSplit"}}, lower = {{"type", "Lowercase"}};
  EXPECT_EQ(error_with("/pre_tokenizer", "pretokenizers", cut, 100000),
            "json: pre_tokenizer.pretokenizers[100] is step 101, expected at most 100 steps");
  EXPECT_EQ(error_with("/normalizer", "normalizers", lower, 101),
            "json: normalizer.normalizers[100] is step 101, expected at most 100 steps");
  EXPECT_EQ(error_with("/normalizer", "normalizers", lower, 100), "");
}

TEST(Tokenizer, RefusesUnknownPrependSchemes) {
  const Scratch scratch;
  const json step = {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "second"}};
  for (const char* place : {"/pre_tokenizer", "/decoder"}) {
    const std::string error = error_of([&] { read_of(scratch, characters({{place, step}})); });
    EXPECT_TRUE(error.ends_with(std::string(&place[1]) +
                                ".prepend_scheme is \"second\", expected always, first or never"))
        << error;
  }
}

TEST(Tokenizer, RefusesFilesThatGrow) {
  const Scratch scratch;
  const auto replace = [](const char* from, const char* to) {
    return json{{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
  };
  json steps = json::array();
  for (int i = 0; i < 40; ++i) steps.push_back(replace("a", "aa"));
  const json decoder = {{"type", "Sequence"}, {"decoders", steps}};
  EXPECT_EQ(error_of([&] {
              read_of(scratch, characters({{"/decoder", decoder}}));
            }),
            "tokenizer: the decoder makes a text of 65538 bytes, expected at most 65536 for one "
            "token");
  const json normalizer = {{"type", "Sequence"}, {"normalizers", steps}};
  const Tokenizer growing = read_of(scratch, characters({{"/normalizer", normalizer}}));
  EXPECT_EQ(error_of([&] { growing.encode("a"); }),
            "tokenizer: the normalized text has 65538 bytes, expected at most 65536");
  const json late = {{"type", "Sequence"},
                     {"decoders", {{{"type", "ByteFallback"}}, replace("ab", "b")}}};
  const std::string error = error_of([&] { read_of(scratch, characters({{"/decoder", late}})); });
  EXPECT_TRUE(error.ends_with("decoders[1].pattern.String is \"ab\", expected a character"))
      << error;
}

TEST(Tokenizer, StreamsTheFirstRunOfBytesAsOneToken) {
  const Scratch scratch;
  const json decoder = json::parse(R"({"type": "Sequence", "decoders": [{"type": "ByteFallback"},
      {"type": "Metaspace", "replacement": "▁"}]})");
  const Tokenizer tokenizer = read_of(scratch, characters({{"/decoder", decoder},
                                                           {"/model/vocab/<0x61>", 5},
                                                           {"/model/vocab/<0xE2>", 6},
                                                           {"/model/vocab/<0x96>", 7},
                                                           {"/model/vocab/<0x81>", 8}}));
  // The package tokenizers 0.23 has these texts.
  EXPECT_EQ(tokenizer.decode(Ids{5, 6, 7, 8, 5}), "aa");
  EXPECT_EQ(streamed(tokenizer, {5, 6, 7, 8, 5}, false), "aa");
  EXPECT_EQ(streamed(tokenizer, {3, 6, 7, 8, 5}, false), "a a");
}

TEST(Tokenizer, RefusesFormsByTheirNames) {
  const Scratch scratch;
  const auto refused = [&](const char* pointer, const char* value) {
    const json file = characters({{pointer, json::parse(value)}});
    const std::string error = error_of([&] { read_of(scratch, file); });
    return error.substr(error.find("json: ") + 6);
  };
  EXPECT_EQ(
      refused("/pre_tokenizer", R"({"type": "Metaspace", "replacement": "_",
                    "add_prefix_space": false, "prepend_scheme": "always"})"),
      "pre_tokenizer.prepend_scheme is \"always\", expected never with add_prefix_space false");
  EXPECT_EQ(
      refused("/pre_tokenizer", R"({"type": "Sequence", "pretokenizers": [
                    {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always"},
                    {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"}]})"),
      "pre_tokenizer is an object, expected no Metaspace \"first\" after steps that change the "
      "text");
  EXPECT_EQ(refused("/normalizer", R"({"type": "Prepend", "prepend": ""})"),
            "normalizer.prepend is \"\", expected a text that is not empty");
  EXPECT_EQ(refused("/pre_tokenizer", R"({"type": "CharDelimiterSplit", "delimiter": "ab"})"),
            "pre_tokenizer.delimiter is \"ab\", expected a character");
  EXPECT_EQ(refused("/pre_tokenizer", R"({"type": "FixedLength", "length": 0})"),
            "pre_tokenizer.length is 0, expected 1 to 65535");
  const char* single = R"({"type": "TemplateProcessing", "single": [%s], "special_tokens": {}})";
  const char* text = R"({"Sequence": {"id": "A"}})";
  for (const std::string& pieces : {std::string(), concat(text, ", ", text)}) {
    EXPECT_EQ(refused("/post_processor", formatted(single, pieces.c_str()).c_str()),
              "post_processor.single is an array, expected the text A once");
  }
  EXPECT_EQ(
      refused("/post_processor", R"({"type": "Sequence", "processors": [
                    {"type": "BertProcessing", "cls": ["a", 3], "sep": ["b", 4]},
                    {"type": "RobertaProcessing", "cls": ["a", 3], "sep": ["b", 4]}]})"),
      "post_processor.processors[1].type is \"RobertaProcessing\", expected one step that adds "
      "tokens");
  EXPECT_EQ(refused("/decoder", R"({"type": "BPEDecoder", "suffix": ""})"),
            "decoder.suffix is \"\", expected a text that is not empty");
  const auto steps = [&](const char* two) {
    return refused("/decoder", formatted(R"({"type": "Sequence", "decoders": [%s]})", two).c_str());
  };
  EXPECT_EQ(
      steps(R"({"type": "WordPiece"}, {"type": "ByteFallback"})"),
      "decoder.decoders[1].type is \"ByteFallback\", expected none after WordPiece, Metaspace "
      "or BPEDecoder");
  EXPECT_EQ(steps(R"({"type": "WordPiece"}, {"type": "BPEDecoder", "suffix": "a"})"),
            "decoder is an object, expected BPEDecoder without WordPiece or Metaspace");
  EXPECT_EQ(
      steps(R"({"type": "ByteFallback"}, {"type": "WordPiece"})"),
      "decoder.decoders[1] is WordPiece after ByteFallback, expected Fuse, Metaspace or Replace");
  EXPECT_EQ(steps(R"({"type": "Fuse"}, {"type": "Metaspace", "replacement": "_"})"),
            "decoder.decoders[1] is Metaspace after Fuse, expected Strip");
}

/// Every change of a good file is read or refused with a sentence.
TEST(Tokenizer, SurvivesDamagedFiles) {
  const Scratch scratch;
  std::mt19937 random(3);
  for (const std::string family : {"gpt2", "llama2", "bert", "t5", "sentencepiece_bpe"}) {
    const bool is_json = !family.starts_with("sentence");
    const std::string name = is_json ? "tokenizer.json" : "tokenizer.model";
    const std::string good = bytes_in(kReference / "tokenizers" / family / name);
    for (int i = 0; i < 60; ++i) {
      std::string bad = good;
      const int changes = 1 + static_cast<int>(random() % 4);
      for (int j = 0; j < changes; ++j) {
        const size_t at = random() % bad.size();
        static constexpr std::string_view marks = "\"[]{},:0a\\";
        switch (random() % 3) {
          case 0: bad[at] = static_cast<char>(random()); break;
          case 1: bad[at] = marks[random() % marks.size()]; break;
          default: bad.resize(at + 1);
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

}  // namespace
}  // namespace weft
