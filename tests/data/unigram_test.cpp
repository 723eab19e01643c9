// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "data/tokenizer/double_array.h"
#include "tests/support/scratch.h"
#include "weft/tokenizer.h"

namespace weft {
namespace {

using Ids = std::vector<int64_t>;
using nlohmann::json;

/// A Unigram model in a tokenizer.json, changed at some places.
class Unigram : public testing::Test {
 protected:
  Tokenizer read(std::initializer_list<std::pair<const char*, json>> changes = {}) const {
    json file = json::parse(R"({"model": {"type": "Unigram", "unk_id": 1, "vocab": [
        ["<s>", 0], ["<unk>", 0], ["a", -1], ["b", -2], ["ab", -4], ["<0x7A>", 0], ["zzz", -50]]},
        "added_tokens": []})");
    for (const auto& [place, value] : changes) file[json::json_pointer(place)] = value;
    return Tokenizer::from_file(scratch_.write("tokenizer.json", file.dump()));
  }
  std::string refusal(const char* place, const json& value) const {
    const std::string error = error_of([&] { read({{place, value}}); });
    return error.substr(std::min(error.find("json: ") + 6, error.size()));
  }

 private:
  Scratch scratch_;
};

/// Expected values are those of the package tokenizers 0.23.
TEST_F(Unigram, TakesTheLikeliestPieces) {
  EXPECT_EQ(read().encode("abba"), (Ids{2, 3, 3, 2}));
  EXPECT_EQ(read({{"/model/vocab/4/1", -2.5}}).encode("abba"), (Ids{4, 3, 2}));
  // The first of two paths with one score stays.
  EXPECT_EQ(read({{"/model/vocab/4/1", -3}}).encode("ab"), (Ids{4}));
  // Unknown characters are one token.
  EXPECT_EQ(read().encode("xya<unk>x"), (Ids{1, 2, 1}));
  EXPECT_EQ(read().encode(""), (Ids{}));
  const json bytes = true;
  EXPECT_EQ(read({{"/model/byte_fallback", bytes}}).encode("azz"), (Ids{2, 5, 5}));
  EXPECT_EQ(read({{"/model/byte_fallback", bytes}}).encode("axz"), (Ids{2, 1}));
  // Unknown characters that together are a piece, which scores less.
  json pieces = json::array();
  for (const char* piece : {"<s>", "<unk>", "a", "b", "ab", "<0x7A>"})
    pieces.push_back({piece, 100});
  pieces.push_back({"zzz", 20});
  EXPECT_EQ(read({{"/model/vocab", pieces}, {"/model/byte_fallback", bytes}}).encode("zzz"),
            (Ids{6}));
}

/// Two paths with the same pieces in another order, whose sums are equal but for the roundings of
/// the package, which reads the last digits otherwise. Expected values are its.
TEST_F(Unigram, BreaksTiesAsThePackageDoes) {
  const json pieces = json::parse(R"([["<s>", 0], ["<unk>", 0], ["p", -1.8851184844970703],
      ["q", -13.449413299560547], [".", -3.8915305137634277], ["...", -8.920549392700195]])");
  const Tokenizer tokenizer = read({{"/model/vocab", pieces}});
  EXPECT_EQ(tokenizer.encode("...."), (Ids{4, 5}));
  EXPECT_EQ(tokenizer.encode("q...."), (Ids{3, 5, 4}));
  EXPECT_EQ(tokenizer.encode("pq...."), (Ids{2, 3, 5, 4}));
}

TEST_F(Unigram, RefusesWhatItCannotUse) {
  EXPECT_EQ(refusal("/model/unk_id", nullptr), "model.unk_id is missing, expected a value");
  EXPECT_EQ(refusal("/model/unk_id", 7), "model.unk_id is 7, expected an id of the vocabulary");
  EXPECT_EQ(refusal("/model/vocab/2", "a"),
            "model.vocab[2] is \"a\", expected a piece and its "
            "score");
  EXPECT_EQ(refusal("/model/vocab", json::object()),
            "model.vocab is an object, expected an array of pieces and their scores");
  const auto table = [](const char* text) {
    return json{{"type", "Precompiled"}, {"precompiled_charsmap", text}};
  };
  EXPECT_EQ(
      refusal("/normalizer", table("?")),
      "normalizer.precompiled_charsmap is \"?\", expected a table of SentencePiece in base64");
  EXPECT_EQ(refusal("/normalizer", table("AAAA")),
            "normalizer.precompiled_charsmap: the table of replacements has 3 bytes, expected as "
            "many as it says");
}

TEST_F(Unigram, FindsTheTextsThatAMapFinds) {
  std::mt19937 random(5);
  std::map<std::string, int32_t> all;
  std::vector<std::string> texts;
  for (int i = 0; i < 5000; ++i) {
    std::string text(1 + random() % 7, '\0');
    for (char& c : text) c = static_cast<char>(random() % (i % 2 ? 256 : 4));
    texts.push_back(text);
  }
  std::vector<text::DoubleArray::Entry> entries;
  for (const std::string& text : texts) {
    const auto number = static_cast<int32_t>(entries.size());
    entries.emplace_back(text, number);
    all[text] = number;
  }
  const text::DoubleArray tree(entries);
  for (const auto& [text, number] : all) EXPECT_EQ(tree.find(text), number);
  for (const std::string& text : texts) {
    const std::string other = text.substr(1) + text[0] + "x";
    size_t longest = 0;
    for (size_t size = 1; size <= other.size(); ++size) {
      if (all.contains(other.substr(0, size))) longest = size;
    }
    EXPECT_EQ(tree.longest(other), longest);
  }
  EXPECT_EQ(text::DoubleArray().longest("a"), 0U);
  EXPECT_EQ(text::DoubleArray().longest("abc"), 0u);
}

}  // namespace
}  // namespace weft
