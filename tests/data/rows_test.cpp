// SPDX-License-Identifier: Apache-2.0
#include "data/rows/order.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "tests/support/scratch.h"
#include "weft/error.h"
#include "weft/extend/token_files.h"
#include "weft/text_dataset.h"

namespace weft {
namespace {

using Paths = std::vector<std::string>;

std::string text_of(const TokenStream& stream) {
  std::vector<int64_t> tokens(static_cast<size_t>(stream.size()));
  stream.copy(0, tokens);
  return {tokens.begin(), tokens.end()};
}

/// A shard of those tokens, with a header of these three numbers.
template <class Token>
std::string write_shard(const Scratch& scratch, const std::string& name,
                        const std::vector<Token>& tokens, int32_t magic, int32_t version,
                        int32_t count) {
  std::vector<int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  std::string bytes(reinterpret_cast<const char*>(header.data()), 1024);
  bytes.append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(Token));
  return scratch.write(name, bytes);
}

TEST(Rows, ReadsFilesAndDirectoriesInOrder) {
  const Scratch scratch;
  const std::string single = scratch.write("single.txt", "first");
  scratch.write("tree/b/two.h", "two\n");
  scratch.write("tree/a.txt",
                "\xff"
                "one");
  scratch.write("tree/c", "three");
  scratch.write("tree/.hidden", "no");
  scratch.write("tree/.git/config", "no");
  scratch.write("tree/empty", "");
  std::filesystem::create_symlink("nowhere", scratch.path("tree/broken"));
  std::filesystem::create_directory_symlink("..", scratch.path("tree/loop"));
  ASSERT_EQ(::mkfifo(scratch.path("tree/pipe").c_str(), 0600), 0);
  const TokenStream stream(Paths{single, scratch.path("tree")}, 256);
  EXPECT_EQ(text_of(stream),
            "first\n\xff"
            "one\ntwo\nthree");
  EXPECT_EQ(stream.paths().size(), 4u);
}

TEST(Rows, ReadsLargeFilesWhereTheyAreWanted) {
  const Scratch scratch;
  std::string large(3 << 20, 'x');
  large.back() = 'y';
  const TokenStream stream(Paths{scratch.write("a", large), scratch.write("b", "end")}, 128);
  EXPECT_EQ(text_of(stream), large + "\nend");
}

TEST(Rows, ReadsTokenShardsOfBothForms) {
  const Scratch scratch;
  const auto small = write_shard<uint16_t>(scratch, "a.bin", {1, 50256, 3}, 20240520, 1, 3);
  const auto large = write_shard<uint32_t>(scratch, "b.bin", {128255, 7}, 20240801, 7, 2);
  const TokenStream stream(Paths{large, small}, 128256);
  std::vector<int64_t> tokens(5), middle(3);
  stream.copy(0, tokens);
  EXPECT_EQ(tokens, (std::vector<int64_t>{128255, 7, 1, 50256, 3}));
  stream.copy(1, middle);
  EXPECT_EQ(middle, (std::vector<int64_t>{7, 1, 50256}));
  stream.copy(5, {});
}

TEST(Rows, ReadsLargeShardsWhereTheyAreWanted) {
  const Scratch scratch;
  std::vector<uint32_t> tokens(400'003);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint32_t>(i * 7 % 100'000);
  const auto count = static_cast<int32_t>(tokens.size());
  const auto path = write_shard<uint32_t>(scratch, "a.bin", tokens, 20240801, 7, count);
  const TokenStream stream(Paths{path, path}, 100'000);
  EXPECT_EQ(stream.paths(), (Paths{path, path}));
  for (const int64_t from : {0, 4095, 8191, 399'000, 400'003, 790'003}) {
    std::vector<int64_t> read(10'000);
    stream.copy(from, read);
    for (size_t i = 0; i < read.size(); ++i) {
      ASSERT_EQ(read[i], tokens[(static_cast<size_t>(from) + i) % tokens.size()])
          << from << ' ' << i;
    }
  }
  tokens[300'001] = 100'000;
  (void)write_shard<uint32_t>(scratch, "a.bin", tokens, 20240801, 7, count);
  EXPECT_EQ(error_of([&] { TokenStream(Paths{path}, 100'000); }),
            concat("data: ", path,
                   ": token 300001 is 100000, but the model's vocabulary has 100000 ids"));
}

TEST(Rows, SaysWhenAFileIsCut) {
  const Scratch scratch;
  const std::string path = scratch.write("a", std::string(2 << 20, 'x'));
  const TokenStream stream(Paths{path}, 256);
  std::vector<int64_t> read(100);
  std::filesystem::resize_file(path, 1'000'010);
  stream.copy(900'000, read);
  EXPECT_EQ(
      error_of<std::runtime_error>([&] { stream.copy(1'000'000, read); }),
      concat("pread: data: ", path,
             " ends at byte 1000010, but bytes 1000000 to 1000100 are wanted; it was cut since "
             "it was opened with 2097152 bytes"));
}

TEST(Rows, SaysWhatIsWrongWithAPath) {
  const Scratch scratch;
  const auto error = [&](const Paths& paths, int64_t vocabulary = 256) {
    return error_of([&] { TokenStream(paths, vocabulary); });
  };
  const std::string missing = scratch.path("missing");
  EXPECT_EQ(error({}), "data: number of paths is 0, expected a file or a directory");
  EXPECT_EQ(error({missing}), "data: cannot open " + missing + ": No such file or directory");
  const std::string empty = scratch.write("empty.txt", "");
  EXPECT_EQ(error({empty}), "data: " + empty + " is empty, expected text");
  std::filesystem::create_directories(scratch.path("none/below"));
  EXPECT_EQ(error({scratch.path("none")}), "data: the directory " + scratch.path("none") +
                                               " has no text, expected a file that is not empty");
  const std::string pipe = scratch.path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(error({pipe}), "data: " + pipe + " is a pipe, expected a file");
  const std::string text = scratch.write("a.txt",
                                         "ab\x80"
                                         "c");
  EXPECT_EQ(error({text}, 128),
            "data: " + text + ": token 2 is 128, but the model's vocabulary has 128 ids");
  const auto shard = write_shard<uint16_t>(scratch, "a.bin", {5}, 20240520, 1, 1);
  const std::string mixed =
      "data: " + shard + " is a token shard (.bin) and " + text + " text, expected one kind";
  const std::string table = scratch.write("a.csv", "a,b\n1,2\n");
  EXPECT_EQ(
      error({table}),
      "data: " + table +
          " is a table or one JSON value, expected text or lines of JSON (.jsonl); convert it: "
          "python -c \"import pandas as p; p.read_csv('" +
          table + "').to_json('data.jsonl', orient='records', lines=True, force_ascii=False)\"");
  EXPECT_EQ(error({text, shard}), mixed);
  EXPECT_EQ(error({shard, text}), mixed);
}

TEST(Rows, SaysWhatIsWrongWithAShard) {
  const Scratch scratch;
  const auto error = [&](const std::string& path, int64_t vocabulary = 4096) {
    const std::string text = error_of([&] { TokenStream(Paths{path}, vocabulary); });
    EXPECT_TRUE(text.starts_with("data: " + path)) << text;
    return text.substr(std::min(text.size(), 6 + path.size()));
  };
  const auto shard = [&](int32_t magic, int32_t version, int32_t count) {
    return write_shard<uint16_t>(scratch, "x.bin", {1, 2, 4096, 5}, magic, version, count);
  };
  EXPECT_EQ(error(scratch.write("x.bin", "text")),
            " has 4 bytes, expected at least 1024, the header of a token shard");
  EXPECT_EQ(error(shard(7, 1, 4)),
            " starts with 7 1, expected 20240520 1 or 20240801 7, as a token shard (.bin)");
  EXPECT_EQ(error(shard(20240520, 2, 4)),
            " starts with 20240520 2, expected 20240520 1 or 20240801 7, as a token shard (.bin)");
  EXPECT_EQ(error(shard(20240520, 1, 5)),
            " has 8 bytes after its header, expected 5 tokens of 2 bytes");
  EXPECT_EQ(error(shard(20240520, 1, -4)),
            " has 8 bytes after its header, expected -4 tokens of 2 bytes");
  EXPECT_EQ(error(shard(20240801, 7, 4)),
            " has 8 bytes after its header, expected 4 tokens of 4 bytes");
  EXPECT_EQ(error(write_shard<uint16_t>(scratch, "x.bin", {}, 20240520, 1, 0)),
            ": it holds no token");
  EXPECT_EQ(error(shard(20240520, 1, 4)),
            ": token 2 is 4096, but the model's vocabulary has 4096 ids");
  EXPECT_EQ(error_of([&] { TokenStream(Paths{shard(20240520, 1, 4)}, 4097); }), "nothing");
}

/// Options for text of `tokens` bytes in which the token at i is i % 251.
DataOptions counted(const Scratch& scratch, int64_t tokens, int64_t sequence, uint64_t seed = 1) {
  std::string text;
  for (int64_t i = 0; i < tokens; ++i) text += static_cast<char>(i % 251);
  return {{scratch.write("counted", text)}, sequence, 256, seed};
}

TEST(Rows, HoldsOutATwentiethAtTheEnd) {
  struct Case {
    int64_t tokens, rows, seq, train, held_out;
  };
  const Scratch scratch;
  for (const Case& c :
       {Case{1001, 1, 10, 95, 5}, Case{1000, 1, 10, 95, 4}, Case{1001, 3, 10, 97, 3},
        Case{1001, 8, 10, 95, 5}, Case{100001, 2, 5, 19968, 32}, Case{21, 1, 10, 1, 1},
        Case{41, 3, 10, 3, 1}, Case{171, 16, 10, 16, 1}, Case{401, 16, 10, 38, 2},
        Case{2011, 200, 10, 191, 10}}) {
    const DataSplit data = split_text_dataset(counted(scratch, c.tokens, c.seq), c.rows);
    EXPECT_EQ(data.train->rows(), c.train) << c.tokens;
    EXPECT_EQ(data.held_out->rows(), c.held_out) << c.tokens;
    EXPECT_EQ(text_dataset(counted(scratch, c.tokens, c.seq))->rows(), c.train + c.held_out);
  }
}

TEST(Rows, TargetsFollowTheirInputs) {
  const Scratch scratch;
  const DataSplit data = split_text_dataset(counted(scratch, 1001, 10), 2);
  std::vector<int64_t> ids(20), targets(20);
  for (int64_t row = 0; row < 120; row += 2) {
    data.train->read(row, {ids, targets});
    for (size_t i = 0; i < 20; ++i) {
      EXPECT_EQ(targets[i], (ids[i] + 1) % 251);
      if (i % 10) {
        EXPECT_EQ(ids[i], targets[i - 1]);
      }
    }
  }
  data.held_out->read(0, {ids, targets});
  EXPECT_EQ(ids[0], data.train->rows() * 10 % 251);
  EXPECT_EQ(ids[10], (data.train->rows() + 1) * 10 % 251);
  EXPECT_EQ(targets[19], (data.train->rows() + 2) * 10 % 251);
}

/// The place in the text of each of `rows` rows of 7 tokens.
std::vector<int64_t> places(const Dataset& data, int64_t first, int64_t rows) {
  std::vector<int64_t> found, ids(static_cast<size_t>(rows * 7)), targets(ids.size());
  data.read(first, {ids, targets});
  for (size_t i = 0; i < ids.size(); i += 7) found.push_back(ids[i] / 7);
  return found;
}

TEST(Rows, SeesEachRowOnceAnEpochInAnotherOrder) {
  const Scratch scratch;
  // 30 rows of 7 tokens, all starts below 251.
  const auto data = text_dataset(counted(scratch, 211, 7));
  ASSERT_EQ(data->rows(), 30);
  // The order of the runs before datasets were in the library.
  EXPECT_EQ(places(*data, 0, 10), (std::vector<int64_t>{11, 8, 24, 9, 0, 12, 26, 5, 6, 15}));
  const auto first = places(*data, 0, 30), second = places(*data, 30, 30);
  std::vector<int64_t> all(30);
  std::iota(all.begin(), all.end(), 0);
  for (auto epoch : {first, second}) {
    std::sort(epoch.begin(), epoch.end());
    EXPECT_EQ(epoch, all);
  }
  EXPECT_NE(first, second);
  EXPECT_NE(first, all);
  EXPECT_NE(first, places(*text_dataset(counted(scratch, 211, 7, 2)), 0, 30));
  for (int64_t row = 0; row < 60; ++row) {
    EXPECT_EQ(places(*data, row, 1)[0],
              row < 30 ? first[static_cast<size_t>(row)] : second[static_cast<size_t>(row - 30)]);
  }
}

TEST(Rows, PermutesAnyCount) {
  for (const int64_t count : {1, 2, 3, 4, 5, 17, 64, 1000, 65537}) {
    for (const uint64_t key : {0, 1, 99}) {
      std::vector<bool> seen(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) {
        const int64_t to = rows::permuted(i, count, key);
        ASSERT_TRUE(to >= 0 && to < count) << count;
        ASSERT_FALSE(seen[static_cast<size_t>(to)]) << count;
        seen[static_cast<size_t>(to)] = true;
      }
    }
  }
}

TEST(Rows, SaysWhenThereIsTooLittle) {
  const Scratch scratch;
  const auto error = [&](int64_t tokens, int64_t rows, int64_t sequence) {
    return error_of([&] { split_text_dataset(counted(scratch, tokens, sequence), rows); });
  };
  EXPECT_EQ(error(20, 3, 10),
            "data: number of tokens is 20, expected at least 21: a row of 10 to train on and one "
            "held out");
  EXPECT_EQ(error(1, 1, 10),
            "data: number of tokens is 1, expected at least 21: a row of 10 to train on and one "
            "held out");
  EXPECT_EQ(error(40, 0, 10), "data: rows of a batch must be at least 1, got 0");
  EXPECT_EQ(error(40, 1, -1), "data: tokens of a row must be at least 1, got -1");
  EXPECT_EQ(error_of([&] { text_dataset(counted(scratch, 10, 10)); }),
            "data: number of tokens is 10, expected at least 11, a row of 10");
  const auto data = text_dataset(counted(scratch, 246, 7));
  std::vector<int64_t> ids(14), targets(14);
  EXPECT_EQ(error_of([&] {
              data->read(-1, {ids, targets});
            }),
            "data: the first row must be at least 0, got -1");
  EXPECT_EQ(error_of([&] {
              data->read(0, {ids, std::span(targets).first(7)});
            }),
            "data: numbers are 14 ids and 7 targets, expected equal numbers, in rows of 7");
  EXPECT_EQ(error_of([&] { TokenStream(Paths{scratch.path("counted")}, 256).copy(240, ids); }),
            "data: tokens are 14 from 240 on, expected some of 246");
}

TEST(Rows, NamesItsFiles) {
  const Scratch scratch;
  const auto data = text_dataset(counted(scratch, 246, 7));
  EXPECT_EQ(data->description(), "246 tokens in 1 files");
  const auto digests = data->digests();
  ASSERT_EQ(digests.size(), 2u);
  EXPECT_EQ(digests[0].first, "data");
  EXPECT_EQ(digests[1].first, "data names");
  EXPECT_EQ(digests[0].second, digest_of(Paths{scratch.path("counted")}));
}

}  // namespace
}  // namespace weft
