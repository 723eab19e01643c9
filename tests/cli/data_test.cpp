// SPDX-License-Identifier: Apache-2.0
#include "cli/data.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "tests/support/scratch.h"
#include "weft/error.h"

namespace weft::cli {
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

TEST(Data, ReadsFilesAndDirectoriesInOrder) {
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

TEST(Data, ReadsLargeFilesWhereTheyAreWanted) {
  const Scratch scratch;
  std::string large(3 << 20, 'x');
  large.back() = 'y';
  const TokenStream stream(Paths{scratch.write("a", large), scratch.write("b", "end")}, 128);
  EXPECT_EQ(text_of(stream), large + "\nend");
}

TEST(Data, ReadsTokenShardsOfBothForms) {
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

TEST(Data, ReadsLargeShardsWhereTheyAreWanted) {
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

TEST(Data, SaysWhenAFileIsCut) {
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

TEST(Data, SaysWhatIsWrongWithAPath) {
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
  EXPECT_EQ(error({text, shard}), mixed);
  EXPECT_EQ(error({shard, text}), mixed);
}

TEST(Data, SaysWhatIsWrongWithAShard) {
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

/// Text of `tokens` bytes in which the token at i is i % 251.
TokenData counted(const Scratch& scratch, int64_t tokens, int64_t rows, int64_t seq,
                  uint64_t seed = 1) {
  std::string text;
  for (int64_t i = 0; i < tokens; ++i) text += static_cast<char>(i % 251);
  return TokenData(Paths{scratch.write("counted", text)}, {256, rows, seq}, seed);
}

TEST(Data, HoldsOutTheLastRowsInWholeBatches) {
  struct Case {
    int64_t tokens, rows, seq, train, validation;
  };
  const Scratch scratch;
  for (const Case& c :
       {Case{1001, 1, 10, 95, 5}, Case{1000, 1, 10, 95, 4}, Case{1001, 3, 10, 97, 3},
        Case{1001, 8, 10, 92, 8}, Case{100001, 2, 5, 19968, 32}, Case{21, 1, 10, 1, 1},
        Case{41, 3, 10, 1, 3}}) {
    const TokenData data = counted(scratch, c.tokens, c.rows, c.seq);
    EXPECT_EQ(data.train_rows(), c.train) << c.tokens;
    EXPECT_EQ(data.validation_rows(), c.validation) << c.tokens;
  }
}

TEST(Data, TargetsFollowTheirInputs) {
  const Scratch scratch;
  const TokenData data = counted(scratch, 1001, 2, 10);
  std::vector<int64_t> inputs(20), targets(20);
  for (int64_t step = 0; step < 60; ++step) {
    data.train(step, 0, inputs, targets);
    for (size_t i = 0; i < 20; ++i) {
      EXPECT_EQ(targets[i], (inputs[i] + 1) % 251);
      if (i % 10) {
        EXPECT_EQ(inputs[i], targets[i - 1]);
      }
    }
  }
  data.validation(0, inputs, targets);
  EXPECT_EQ(inputs[0], data.train_rows() * 10 % 251);
  EXPECT_EQ(inputs[10], (data.train_rows() + 1) * 10 % 251);
  EXPECT_EQ(targets[19], (data.train_rows() + 2) * 10 % 251);
}

/// The number of the row (of 7 tokens) that each row of the batches from `step` on is.
std::vector<int64_t> rows_from(const TokenData& data, int64_t step, int64_t steps, int64_t rows) {
  std::vector<int64_t> found, inputs(static_cast<size_t>(rows * 7)), targets(inputs.size());
  for (int64_t s = step; s < step + steps; ++s) {
    data.train(s, 0, inputs, targets);
    for (size_t i = 0; i < inputs.size(); i += 7) found.push_back(inputs[i] / 7);
  }
  return found;
}

TEST(Data, SeesEachRowOnceAnEpochInAnotherOrder) {
  const Scratch scratch;
  // 35 rows of 7 tokens, all starts below 251; 5 held out.
  const TokenData data = counted(scratch, 246, 5, 7);
  ASSERT_EQ(data.train_rows(), 30);
  const auto first = rows_from(data, 0, 6, 5);
  const auto second = rows_from(data, 6, 6, 5);
  std::vector<int64_t> all(30);
  std::iota(all.begin(), all.end(), 0);
  for (auto epoch : {first, second}) {
    std::sort(epoch.begin(), epoch.end());
    EXPECT_EQ(epoch, all);
  }
  EXPECT_NE(first, second);
  EXPECT_NE(first, all);
  EXPECT_NE(first, rows_from(counted(scratch, 246, 5, 7, 2), 0, 6, 5));
  EXPECT_EQ(second, rows_from(counted(scratch, 246, 5, 7), 6, 6, 5));
}

TEST(Data, GivesAnyNumberOfRanksTheSameRows) {
  const Scratch scratch;
  const TokenData data = counted(scratch, 246, 5, 7);
  std::vector<int64_t> whole(35), whole_targets(35);
  data.train(3, 0, whole, whole_targets);
  for (int64_t cut = 0; cut <= 5; ++cut) {
    const auto at = static_cast<size_t>(cut * 7);
    std::vector<int64_t> inputs(35), targets(35);
    const std::span in(inputs), out(targets);
    data.train(3, 0, in.first(at), out.first(at));
    data.train(3, cut, in.subspan(at), out.subspan(at));
    EXPECT_EQ(inputs, whole);
    EXPECT_EQ(targets, whole_targets);
  }
}

TEST(Data, PermutesAnyCount) {
  for (const int64_t count : {1, 2, 3, 4, 5, 17, 64, 1000, 65537}) {
    for (const uint64_t key : {0, 1, 99}) {
      std::vector<bool> seen(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) {
        const int64_t to = permuted(i, count, key);
        ASSERT_TRUE(to >= 0 && to < count) << count;
        ASSERT_FALSE(seen[static_cast<size_t>(to)]) << count;
        seen[static_cast<size_t>(to)] = true;
      }
    }
  }
}

TEST(Data, SaysWhenThereIsTooLittle) {
  const Scratch scratch;
  EXPECT_EQ(error_of([&] { counted(scratch, 40, 3, 10); }),
            "data: number of tokens is 40, expected at least 41: a row of 10 to train on and a "
            "batch of 3 held out");
  EXPECT_EQ(error_of([&] { counted(scratch, 1, 1, 10); }),
            "data: number of tokens is 1, expected at least 21: a row of 10 to train on and a "
            "batch of 1 held out");
  EXPECT_EQ(error_of([&] { counted(scratch, 40, 0, 10); }),
            "data: rows of a batch must be at least 1, got 0");
  EXPECT_EQ(error_of([&] { counted(scratch, 40, 1, -1); }),
            "data: tokens of a row must be at least 1, got -1");
  const TokenData data = counted(scratch, 246, 5, 7);
  std::vector<int64_t> inputs(14), targets(14);
  EXPECT_EQ(error_of([&] { data.train(2, 4, inputs, targets); }),
            "data: rows are 4 to 6 of step 2, expected some of the 5 of a batch");
  EXPECT_EQ(error_of([&] { data.validation(4, inputs, targets); }),
            "data: held-out rows are 4 to 6, expected some of 5");
  EXPECT_EQ(error_of([&] { data.validation(0, inputs, std::span(targets).first(7)); }),
            "data: numbers are 14 inputs and 7 targets, expected equal numbers, in rows of 7");
  EXPECT_EQ(error_of([&] { data.stream().copy(240, inputs); }),
            "data: tokens are 14 from 240 on, expected some of 246");
}

}  // namespace
}  // namespace weft::cli
