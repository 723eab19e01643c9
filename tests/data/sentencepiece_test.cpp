// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/scratch.h"
#include "weft/tokenizer.h"

namespace weft {
namespace {

using Ids = std::vector<int64_t>;

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value > 127; value >>= 7) bytes += static_cast<char>(value | 128);
  return bytes + static_cast<char>(value);
}

std::string number_field(uint64_t number, uint64_t value) {
  return varint(number << 3) + varint(value);
}

std::string bytes_field(uint64_t number, const std::string& bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + bytes;
}

std::string piece(const std::string& text, float score, uint64_t type) {
  std::string bits(4, '\0');
  std::memcpy(bits.data(), &score, 4);
  return bytes_field(1, bytes_field(1, text) + varint(2 << 3 | 5) + bits + number_field(3, type));
}

/// A table with one match, the byte `label`, whose text begins at `value` of `texts`.
std::string table_of(char label, uint32_t value, const std::string& texts) {
  const uint32_t byte = static_cast<unsigned char>(label), node = 256 ^ byte;
  std::vector<uint32_t> units(512);
  units[0] = 256 << 10;
  units[node] = byte | 0x100 | 16 << 10;
  units[node ^ 16] = 0x80000000 | value;
  const auto size = static_cast<uint32_t>(units.size() * 4);
  std::string table(4 + size, '\0');
  std::memcpy(table.data(), &size, 4);
  std::memcpy(table.data() + 4, units.data(), size);
  return table + texts;
}

/// A Unigram model (kind 1) or BPE (2) of <unk>, b, c and `more`.
std::string model_of(uint64_t kind, const std::string& table, const std::string& more = {}) {
  return piece("<unk>", 0, 2) + piece("b", -1, 1) + piece("c", -2, 1) + more +
         bytes_field(2, number_field(3, kind)) +
         bytes_field(3, bytes_field(2, table) + number_field(3, 0) + number_field(4, 0) +
                            number_field(5, 0));
}

class Sentencepiece : public testing::Test {
 protected:
  Tokenizer read(const std::string& model) const {
    return Tokenizer::from_file(scratch_.write("tokenizer.model", model));
  }
  std::string refusal(const std::string& model) const {
    const std::string error = error_of([&] { read(model); });
    return error.substr(std::min(error.find("model: ") + 7, error.size()));
  }

  Scratch scratch_;
};

TEST_F(Sentencepiece, ReplacesWholeCharacters) {
  const std::string texts("c\0b\0", 4);
  EXPECT_EQ(read(model_of(1, table_of('a', 2, texts))).encode("ab"), (Ids{1, 1}));
  // A value inside a text, and one beyond all.
  EXPECT_EQ(read(model_of(1, table_of('a', 1, texts))).encode("ab"), (Ids{0, 1}));
  EXPECT_EQ(read(model_of(1, table_of('a', 9, texts))).encode("ab"), (Ids{0, 1}));
  // A match of the first byte of U+00E9 alone.
  EXPECT_EQ(read(model_of(1, table_of('\xC3', 2, texts))).encode("\u00E9"), (Ids{0}));
}

TEST_F(Sentencepiece, RefusesDamagedTables) {
  for (const uint64_t kind : {1, 2}) {
    EXPECT_EQ(refusal(model_of(kind, table_of('a', 0, std::string("\xF0\0", 2)))),
              "byte 0 of the texts of replacements is 240, expected UTF-8");
  }
  EXPECT_EQ(refusal(model_of(1, table_of('a', 0, std::string(2000, 'b') + '\0'))),
            "a text of replacements has 2000 bytes, expected at most 1024");
}

TEST_F(Sentencepiece, LeavesOutPiecesThatTheConfigCallsSpecial) {
  const std::string table = table_of('a', 0, std::string("b\0", 2));
  scratch_.write("of/tokenizer.model", model_of(1, table, piece("<turn>", 0, 4)));
  scratch_.write("of/tokenizer_config.json",
                 R"({"added_tokens_decoder": {"3": {"content": "<turn>", "special": true}}})");
  const Tokenizer tokenizer = Tokenizer::from_directory(scratch_.path("of"));
  const Ids ids = tokenizer.encode("b<turn>c", false);
  EXPECT_EQ(ids, (Ids{1, 3, 2}));
  EXPECT_TRUE(tokenizer.is_special(3));
  EXPECT_EQ(tokenizer.decode(ids), "bc");
  EXPECT_EQ(tokenizer.decode(ids, false), "b<turn>c");
}

TEST_F(Sentencepiece, RefusesLongPieces) {
  const std::string table = table_of('a', 0, std::string("b\0", 2));
  EXPECT_EQ(refusal(model_of(2, table, piece(std::string(1025, 'b'), -3, 1))),
            "a piece has 1025 bytes, expected at most 1024");
  std::string all;
  for (size_t i = 2; i <= 1024; ++i) all += piece(std::string(i, 'b'), -3, 1);
  for (size_t i = 2; i <= 1024; ++i) all += piece(std::string(i, 'c'), -3, 1);
  EXPECT_TRUE(refusal(model_of(2, table, all)).starts_with("the merges of its pieces have 5368"));
}

}  // namespace
}  // namespace weft
