// SPDX-License-Identifier: Apache-2.0
#include "weft/text_dataset.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/rows/documents.h"
#include "data/rows/pieces.h"
#include "data/rows/token_index.h"
#include "tests/support/scratch.h"
#include "weft/error.h"
#include "weft/extend/token_files.h"
#include "weft/ops/networks.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Ids = std::vector<int64_t>;

const fs::path kFiles = fs::path(WEFT_SOURCE_DIR) / "tests/reference/datasets";

std::string at(const std::string& name) { return (kFiles / name).string(); }

const json& expected() {
  static const json all = json::parse(std::ifstream(kFiles / "expected.json"));
  return all;
}

Tokenizer tokenizer() {
  static const Tokenizer one = Tokenizer::from_directory(kFiles.string());
  return one;
}

std::string text_in(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void expect_documents(const std::string& file, const std::string& name,
                      const TokenFileOptions& options) {
  const rows::DocumentReader reader(options);
  std::ifstream lines(kFiles / file);
  std::string line;
  for (const json& one : expected()["documents"][name]) {
    ASSERT_TRUE(std::getline(lines, line)) << name;
    const rows::Document made = reader.line(line, name);
    EXPECT_EQ(made.ids, one[0].get<Ids>()) << name << ' ' << line;
    const Ids counts(made.counts.begin(), made.counts.end());
    EXPECT_EQ(counts.empty() ? Ids(made.ids.size(), 1) : counts, one[1].get<Ids>()) << line;
  }
}

TEST(TextDataset, GivesTheDocumentsOfPython) {
  expect_documents("lines.jsonl", "lines", {.tokenizer = tokenizer()});
  expect_documents("named.jsonl", "lines", {.tokenizer = tokenizer(), .field = "body"});
  expect_documents("chat.jsonl", "chat", {.tokenizer = tokenizer()});
  expect_documents("completion.jsonl", "completion", {.tokenizer = tokenizer()});
  expect_documents("chat.jsonl", "marked",
                   {.tokenizer = tokenizer().with_chat_template(text_in(at("marking.jinja")))});
  const Scratch scratch;
  fs::copy_file(kFiles / "tokenizer.json", scratch.path("tokenizer.json"));
  scratch.write("tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
  expect_documents("completion.jsonl", "plain",
                   {.tokenizer = Tokenizer::from_directory(scratch.root())});
  for (const json& one : expected()["documents"]["text"]) {
    static int number = 0;
    const std::string text = text_in(at(number++ == 0 ? "text/a.txt" : "text/b.txt"));
    EXPECT_EQ(rows::DocumentReader({.tokenizer = tokenizer()}).text(text).ids, one[0].get<Ids>());
  }
}

TEST(TextDataset, CountsAllTokensWhereAsked) {
  const rows::DocumentReader reader({.tokenizer = tokenizer(), .loss = LossOn::all});
  for (const char* line : {R"({"messages": [{"role": "user", "content": "a"}]})",
                           R"({"prompt": "a", "completion": "b"})"}) {
    EXPECT_TRUE(reader.line(line, "").counts.empty());
  }
}

struct Read {
  Ids ids, targets, segments;
  bool operator==(const Read&) const = default;
};

Read read(const Dataset& data, int64_t row) {
  Read made;
  made.ids.resize(static_cast<size_t>(data.sequence()));
  made.targets.resize(made.ids.size());
  if (data.has_segments()) made.segments.resize(made.ids.size());
  data.read(row, {made.ids, made.targets, made.segments});
  return made;
}

void expect_rows(const Dataset& data, const std::string& name) {
  const json& rows = expected()["rows"][name];
  for (size_t i = 0; i < rows.size(); ++i) {
    size_t index = i;
    if (name == "mixed" && i >= 60) index = std::array<size_t, 3>{1023, 1024, 5000}[i - 60];
    const Read made = read(data, static_cast<int64_t>(index));
    EXPECT_EQ(made.ids, rows[i][0].get<Ids>()) << name << ' ' << index;
    EXPECT_EQ(made.targets, rows[i][1].get<Ids>()) << name << ' ' << index;
    if (data.has_segments()) {
      EXPECT_EQ(made.segments, rows[i][2].get<Ids>()) << name << ' ' << index;
    }
  }
}

DataOptions options_of(const std::vector<std::string>& names, uint64_t seed, bool pack = false) {
  DataOptions options{.sequence = 32, .seed = seed, .tokenizer = tokenizer(), .pack = pack};
  for (const auto& name : names) options.paths.push_back(at(name));
  return options;
}

TEST(TextDataset, GivesTheRowsOfPython) {
  expect_rows(*text_dataset(options_of({"text"}, 5)), "joined");
  expect_rows(*text_dataset(options_of({"chat.jsonl"}, 6)), "padded");
  expect_rows(*text_dataset(options_of({"text"}, 7, true)), "packed text");
  expect_rows(*text_dataset(options_of({"lines.jsonl"}, 7, true)), "packed lines");
  expect_rows(*text_dataset(options_of({"chat.jsonl"}, 7, true)), "packed chat");
  DataOptions mixed = options_of({"text", "lines.jsonl", "chat.jsonl"}, 8);
  mixed.weights = {0.5, 0.3, 0.2};
  expect_rows(*text_dataset(mixed), "mixed");
}

TEST(TextDataset, ReadsTheTokenFilesThatItWrites) {
  const Scratch scratch;
  const std::vector<std::pair<std::string, std::string>> all = {
      {"text", "joined"}, {"chat.jsonl", "padded"}, {"chat.jsonl", "packed chat"}};
  // Documents cross the ends of files.
  for (const int64_t most : {1'000'000, 37}) {
    for (const auto& [name, rows] : all) {
      const std::string folder = scratch.path(concat(name, rows, most));
      fs::create_directories(folder);
      const std::vector<std::string> files = data_files(std::vector{at(name)});
      const TokenCounts counts =
          write_token_files(files, {.tokenizer = tokenizer(), .file_tokens = most}, folder);
      EXPECT_EQ(counts.files, (counts.tokens + most - 1) / most);
      EXPECT_TRUE(rows::are_whole(folder));
      DataOptions options = options_of({},
                                       rows == "joined"   ? 5
                                       : rows == "padded" ? 6
                                                          : 7,
                                       rows.starts_with("packed"));
      options.paths = {folder};
      expect_rows(*text_dataset(options), rows);
    }
  }
}

TEST(TextDataset, MixesByWeightsAndHoldsRowsOut) {
  DataOptions options = options_of({"text", "lines.jsonl", "chat.jsonl"}, 8);
  options.weights = {5, 3, 2};
  const DataSplit data = split_text_dataset(options, 2);
  const int64_t held_rows = data.held_out->rows();
  EXPECT_GE(held_rows, 3);
  EXPECT_EQ(data.train->rows() + held_rows, text_dataset(options)->rows());
  // No row is in both, but those of equal text.
  std::vector<Read> held;
  for (int64_t i = 0; i < held_rows; ++i) held.push_back(read(*data.held_out, i));
  for (int64_t i = 0; i < 200; ++i) {
    EXPECT_EQ(std::ranges::count(held, read(*data.train, i)), 0) << i;
  }
  EXPECT_EQ(read(*data.held_out, held_rows), held[0]);
  options.weights = {5, 0, 2};
  EXPECT_EQ(error_of([&] { text_dataset(options); }),
            "data: a weight of the mixture must be above 0 and finite, got 0");
  options.weights = {5, 1, 2000};
  EXPECT_EQ(error_of([&] { text_dataset(options); }),
            "data: a weight of the mixture is 1, expected at least 1/1024 of their sum 2006");
  options.weights = {5};
  EXPECT_EQ(error_of([&] { text_dataset(options); }),
            "data: number of weights is 1, expected one for each of 3 paths");
}

/// The time at which each file of a folder was last written.
std::map<std::string, fs::file_time_type> times(const std::string& folder) {
  std::map<std::string, fs::file_time_type> all;
  for (const auto& file : fs::recursive_directory_iterator(folder)) {
    if (file.is_regular_file() && file.path().extension() != ".lock") {
      all[file.path().string()] = file.last_write_time();
    }
  }
  return all;
}

TEST(TextDataset, KeepsTokensInItsCache) {
  const Scratch scratch;
  DataOptions options = options_of({"chat.jsonl"}, 6);
  options.cache = scratch.path("cache");
  expect_rows(*text_dataset(options), "padded");
  const auto first = times(options.cache);
  ASSERT_EQ(first.size(), 2u);
  // Another name, and the same content.
  options.paths = {scratch.write("other.jsonl", text_in(at("chat.jsonl")))};
  expect_rows(*text_dataset(options), "padded");
  EXPECT_EQ(times(options.cache), first);
  // Cut, changed and removed files are made again.
  for (const auto& [path, time] : first) {
    for (const int how : {0, 1, 2}) {
      const auto size = fs::file_size(path);
      if (how == 0) fs::resize_file(path, size - 1);
      if (how == 1) fs::remove(path);
      if (how == 2) {
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(static_cast<std::streamoff>(size) - 3).put('\x55').put('\x55');
      }
      expect_rows(*text_dataset(options), "padded");
      EXPECT_EQ(fs::file_size(path), size);
    }
  }
  EXPECT_EQ(times(options.cache).size(), 2u);
  options.loss = LossOn::all;
  (void)text_dataset(options)->rows();
  EXPECT_EQ(times(options.cache).size(), 4u);
  options.cache = scratch.write("file", "");
  EXPECT_TRUE(error_of<std::runtime_error>([&] {
                (void)text_dataset(options)->rows();
              }).starts_with("mkdir: data: " + options.cache));
}

TEST(TextDataset, CutsTextWhereTokensEnd) {
  const Scratch scratch;
  std::string text;
  for (int i = 0; text.size() < 20'000; ++i) {
    text += i % 7 == 0 ? "\n\n" : i % 5 == 0 ? "\n" : i % 11 == 0 ? "  \n \u4e2d\u6587 " : " ";
    text += concat("word", i * i, i % 13 == 0 ? "." : i % 17 == 0 ? "\U0001f600" : "");
  }
  const std::vector<std::string> path = {scratch.write("a.txt", text)};
  for (const auto& family : fs::directory_iterator(kFiles.parent_path() / "tokenizers")) {
    if (!family.is_directory()) continue;
    const Tokenizer one = Tokenizer::from_directory(family.path().string());
    const rows::DocumentReader reader({.tokenizer = one});
    for (const int64_t block : {300, 1000, 1 << 20}) {
      rows::PieceCutter cutter(path, one, block);
      Ids ids;
      int pieces = 0;
      while (const auto piece = cutter.next()) {
        const auto made = rows::documents_of(*piece, reader);
        ids.insert(ids.end(), made[0].ids.begin(), made[0].ids.end());
        EXPECT_EQ(made[0].continues, pieces > 0);
        ++pieces;
      }
      EXPECT_EQ(ids, reader.text(text).ids) << family.path() << ' ' << block;
      EXPECT_GT(pieces, block == 1 << 20 ? 0 : 3) << family.path() << ' ' << block;
    }
  }
}

TEST(TextDataset, SaysWhereTextCannotBeCut) {
  const Scratch scratch;
  for (const char* name : {"a.txt", "a.jsonl"}) {
    const std::vector<std::string> path = {scratch.write(name, std::string(2000, 'x') + "\n")};
    rows::PieceCutter cutter(path, tokenizer(), 300, 1000);
    EXPECT_EQ(error_of([&] { cutter.next(); }),
              concat("data: ", path[0], " has ", name[2] == 't' ? "text without lines" : "a line",
                     " of more than 1000 bytes from byte 0 on, expected shorter ones"));
  }
  rows::Piece piece{.path = "a", .bytes = "se", .lead = "Licen"};
  EXPECT_EQ(
      error_of([&] { documents_of(piece, rows::DocumentReader({.tokenizer = tokenizer()})); }),
      "data: a cannot be cut into blocks, expected a tokenizer whose tokens depend on the text "
      "near them; cut the file");
}

TEST(TextDataset, SaysWhatIsWrongWithALine) {
  const Scratch scratch;
  const auto error = [&](const std::string& line, DataOptions options = {}) {
    const std::string path = scratch.write("a.jsonl", "\n \n" + line + "\n");
    options.paths = {path};
    options.tokenizer = tokenizer();
    const std::string found = error_of([&] { (void)text_dataset(options)->rows(); });
    const std::string start = "data: " + path + ": line 3: ";
    EXPECT_TRUE(found.starts_with(start)) << found;
    return found.substr(std::min(found.size(), start.size()));
  };
  EXPECT_TRUE(error("{\"text\": \"open").starts_with("not valid JSON: "));
  EXPECT_EQ(error("[1]"), "the JSON value is not an object");
  EXPECT_EQ(error(R"({"text": 5})"), "the field \"text\" is a number, expected a text");
  EXPECT_EQ(
      error(R"({"a": 5, "b": 1})"),
      "the fields are \"a\", \"b\", expected messages, conversations, prompt and completion, or "
      "text; name another field by --field");
  EXPECT_EQ(
      error(R"({"messages": [{"role": "user", "content": "a"},)"
            R"({"role": "bot", "content": "b"}]})"),
      "the roles are \"user\", \"bot\", expected \"assistant\" among them, for the loss is on "
      "the assistant's tokens; train on all tokens by --loss-on all");
  EXPECT_EQ(error(R"({"messages": "hi"})"),
            "the field \"messages\" is a string, expected a list of messages");
  EXPECT_EQ(error(R"({"messages": []})"), "chat: there are 0 messages, expected at least 1");
  EXPECT_EQ(error(R"({"messages": [5]})"), "chat: message 0 is a int, expected a dict");
  EXPECT_EQ(
      error(R"({"prompt": "a", "completion": [1]})"),
      "prompt is a string and completion a array, expected two texts or two lists of messages");
  EXPECT_EQ(error(R"({"text": "a"})", {.loss = LossOn::assistant}),
            "it is a text, expected messages, or a prompt and a completion; the loss is on the "
            "assistant's tokens");
  EXPECT_EQ(error(R"({"a": "x"})", {.field = "text"}),
            "the field \"text\" is missing, expected it among \"a\"");
  EXPECT_EQ(error(R"({"text": {}})", {.field = "text"}),
            "the field \"text\" is a object, expected a text");
}

/// ShareGPT's keys and roles are those that its users have.
TEST(TextDataset, ReadsConversationsOfShareGpt) {
  const rows::DocumentReader reader({.tokenizer = tokenizer()});
  const auto usual = reader.line(R"({"messages": [{"role": "system", "content": "s"},)"
                                 R"({"role": "user", "content": "a b"},)"
                                 R"({"role": "assistant", "content": "c d"}]})",
                                 "x: line 1");
  const auto other = reader.line(R"({"conversations": [{"from": "system", "value": "s"},)"
                                 R"({"from": "human", "value": "a b"},)"
                                 R"({"from": "gpt", "value": "c d"}]})",
                                 "x: line 1");
  EXPECT_EQ(other.ids, usual.ids);
  EXPECT_EQ(other.counts, usual.counts);
  EXPECT_GT(std::ranges::count(other.counts, 1), 0);
}

TEST(TextDataset, RefusesATemplateThatChangesEarlierMessages) {
  const std::string last_only =
      "{% for m in messages %}{{ m.role if loop.last else '' }}{{ m.content }}{% endfor %}";
  const rows::DocumentReader reader({.tokenizer = tokenizer().with_chat_template(last_only)});
  EXPECT_EQ(
      error_of([&] {
        reader.line(R"({"messages": [{"role": "user", "content": "a"},)"
                    R"({"role": "assistant", "content": "b"}]})",
                    "x: line 1");
      }),
      "data: x: line 1: the chat template changes the text of earlier messages at message 1, "
      "expected one that does not; mark answers by {% generation %} in the template, or train "
      "on all tokens (--loss-on all)");
}

TEST(TextDataset, SaysWhatIsWrongWithAFile) {
  const Scratch scratch;
  const auto error = [&](const std::string& path, DataOptions options = {}) {
    options.paths = {path};
    const std::string found = error_of([&] { (void)text_dataset(options)->rows(); });
    EXPECT_TRUE(found.starts_with("data: " + path)) << found;
    return found.substr(std::min(found.size(), 6 + path.size()));
  };
  const auto convert = [&](const char* name, const std::string& bytes) {
    const std::string path = scratch.write(name, bytes);
    const std::string found = error(path);
    EXPECT_NE(found.find(path), std::string::npos) << found;
    return found.substr(0, found.find(path));
  };
  EXPECT_EQ(convert("a.txt", "\x1f\x8b rest"),
            " is compressed, expected text; convert it: gzip -dk ");
  EXPECT_EQ(convert("a.zst", "x"), " is compressed, expected text; convert it: zstd -dk ");
  EXPECT_EQ(convert("a.xz", "x"), " is compressed, expected text; convert it: xz -dk ");
  EXPECT_EQ(convert("b", "BZh91AY"), " is compressed, expected text; convert it: bzip2 -dk ");
  EXPECT_EQ(convert("a.zip", "x"), " is an archive, expected text; convert it: unzip ");
  EXPECT_TRUE(
      convert("data", "PAR1xxxx").starts_with(" is a Parquet table, expected text; convert"));
  EXPECT_TRUE(convert("a.arrow", "x").starts_with(" is an Arrow table, expected text; convert"));
  EXPECT_EQ(error(at("text/a.txt"), {.vocabulary = 50257}),
            " is text and the model, which has 50257 ids, no tokenizer, expected one; name it by "
            "--tokenizer, or make token files by weft tokenize");
  EXPECT_EQ(error(at("chat.jsonl")),
            " is lines of JSON and the model, which has 256 ids, no tokenizer, expected one; name "
            "it by --tokenizer, or make token files by weft tokenize");
  DataOptions bytes{.vocabulary = 50257, .bytes = true};
  bytes.paths = {at("text/a.txt")};
  EXPECT_GT(text_dataset(bytes)->rows(), 1000);
  EXPECT_EQ(
      error(at("text/a.txt"), {.pack = true}),
      " is text whose bytes are the tokens, expected documents to pack: a tokenizer, or token "
      "files of weft tokenize");
  EXPECT_EQ(error(scratch.write("blank.jsonl", "\n \n"), {.tokenizer = tokenizer()}),
            " has 0 tokens, expected at least 1");
  EXPECT_EQ(error_of([&] {
              data_files(std::vector{at("chat.jsonl"), at("text")});
            }),
            "data: " + at("chat.jsonl") + " is lines of JSON and " + at("text/a.txt") +
                " text, expected one kind");
}

TEST(TextDataset, SaysWhatIsWrongWithAnIndex) {
  const Scratch scratch;
  const auto make = [&](const std::string& name, const std::string& from, int64_t most = 1 << 30) {
    const std::string folder = scratch.path(name);
    fs::create_directories(folder);
    write_token_files(data_files(std::vector{at(from)}),
                      {.tokenizer = tokenizer(), .file_tokens = most}, folder);
    return folder;
  };
  const auto error = [&](const std::vector<std::string>& paths, bool pack = false) {
    return error_of([&] {
      (void)text_dataset({.paths = paths, .tokenizer = tokenizer(), .pack = pack})->rows();
    });
  };
  const std::string a = make("a", "text", 300), b = make("b", "chat.jsonl");
  EXPECT_EQ(error({a, b}), "data: " + b +
                               "/tokens-00000.idx is of lines of JSON, expected an index of "
                               "the kind of the first");
  fs::remove(a + "/tokens-00001.idx");
  EXPECT_EQ(error({a}), "data: " + a + "/tokens-00001.bin has no index " + a +
                            "/tokens-00001.idx, expected one, as " + a + "/tokens-00000.bin has");
  fs::remove(b + "/tokens-00000.idx");
  EXPECT_EQ(error({b}, true), "data: " + b +
                                  "/tokens-00000.bin has no index (.idx) of its documents, "
                                  "expected one to pack them; weft tokenize writes it");
  EXPECT_EQ(error({b}), "nothing");
  fs::copy_file(a + "/tokens-00000.idx", b + "/tokens-00000.idx");
  EXPECT_TRUE(
      error({b}).starts_with("data: the index " + b + "/tokens-00000.idx is of 300 tokens"));
  scratch.write("b/tokens-00000.idx", "short");
  EXPECT_EQ(error({b}), "data: the index " + b +
                            "/tokens-00000.idx is damaged, expected a file of weft tokenize");
  EXPECT_EQ(error_of([&] { make("c", "text", 0); }),
            "data: tokens of a file must be at least 1 and at most 2147483647, got 0");
}

/// Marks of an index are those of the tokeniser's run; what is asked for later decides.
TEST(TextDataset, TakesTheLossThatIsAskedForOfTokenFiles) {
  const Scratch scratch;
  const auto make = [&](const std::string& name, const std::string& from) {
    const std::string folder = scratch.path(name);
    fs::create_directories(folder);
    write_token_files(data_files(std::vector{at(from)}), {.tokenizer = tokenizer()}, folder);
    return folder;
  };
  const std::string chat = make("chat", "chat.jsonl"), text = make("text", "text");
  const auto counted = [&](LossOn loss) {
    const auto data =
        text_dataset({.paths = {chat}, .sequence = 64, .tokenizer = tokenizer(), .loss = loss});
    Ids ids(static_cast<size_t>(64 * data->rows())), targets(ids.size());
    data->read(0, {ids, targets});
    return std::ssize(targets) - std::ranges::count(targets, kIgnoredTarget);
  };
  EXPECT_GT(counted(LossOn::automatic), 0);
  EXPECT_EQ(counted(LossOn::assistant), counted(LossOn::automatic));
  EXPECT_GT(counted(LossOn::all), counted(LossOn::automatic));
  EXPECT_EQ(
      error_of([&] {
        (void)text_dataset({.paths = {text}, .tokenizer = tokenizer(), .loss = LossOn::assistant})
            ->rows();
      }),
      "data: " + text +
          "/tokens-00000.bin has no index (.idx) of the assistant's tokens, "
          "expected one for a loss on them alone; weft tokenize writes it of conversations");
}

TEST(TextDataset, RefusesIdsBeyondTheModel) {
  DataOptions options = options_of({"chat.jsonl"}, 6);
  options.vocabulary = 270;
  EXPECT_EQ(error_of([&] { (void)text_dataset(options)->rows(); }),
            "data: the tokenizer has 420 ids, of which " + at("chat.jsonl") +
                " uses some beyond the 270 of the model, expected the model's tokenizer");
}

TEST(TextDataset, ChecksSpans) {
  const DataOptions options = options_of({"chat.jsonl"}, 6, true);
  const auto data = text_dataset(options);
  Ids ids(64), targets(64), segments(32);
  EXPECT_EQ(error_of([&] {
              data->read(0, {ids, targets, segments});
            }),
            "data: number of segments is 32, expected 64");
  const Scratch scratch;
  DataOptions few = options_of({"chat.jsonl"}, 6);
  few.sequence = 60;
  few.paths = {scratch.write("one.jsonl", R"({"text": "one row"})")};
  EXPECT_EQ(error_of([&] { (void)split_text_dataset(few, 100).train->rows(); }),
            "data: number of rows is 1, expected at least 2: a row of 60 to train on and one held "
            "out");
  few.paths.push_back(few.paths[0]);
  few.weights = {1, 2};
  EXPECT_EQ(error_of([&] { (void)split_text_dataset(few, 100).train->rows(); }),
            "data: each source has 1 row, expected one of at least 2, of which some are held out");
}

TEST(TextDataset, SaysWhatBecomesOfLongDocuments) {
  const Scratch scratch;
  DataOptions options = options_of({}, 6);
  options.sequence = 8;
  std::string lines;
  for (const int words : {1, 20, 2, 30}) {
    std::string text = "a";
    for (int i = 1; i < words; ++i) text += " b";
    lines += R"({"text": ")" + text + "\"}\n";
  }
  options.paths = {scratch.write("long.jsonl", lines)};
  const auto split = text_dataset(options);
  EXPECT_NE(split->description().find(
                "; 2 of 4 documents are longer than a row of 8 tokens and are split"),
            std::string::npos)
      << split->description();
  EXPECT_GT(split->rows(), 4);
  options.long_documents = LongDocuments::truncate;
  const auto truncated = text_dataset(options);
  EXPECT_EQ(truncated->rows(), 4);
  EXPECT_NE(truncated->description().find("are truncated"), std::string::npos);
  EXPECT_NE(truncated->digests(), split->digests());
  options.long_documents = LongDocuments::drop;
  const auto dropped = text_dataset(options);
  EXPECT_EQ(dropped->rows(), 2);
  EXPECT_NE(dropped->description().find("are dropped"), std::string::npos);
  options.pack = true;
  EXPECT_EQ(text_dataset(options)->rows(), 1);
}

TEST(TextDataset, ReadsBytesForAVocabularyOfBytesAlone) {
  const Scratch scratch;
  DataOptions options{.paths = {scratch.write("a.txt", "some text")}, .sequence = 2};
  options.vocabulary = 256;
  EXPECT_EQ(text_dataset(options)->rows(), 4);
  for (const int64_t vocabulary : {255, 257, 380}) {
    options.vocabulary = vocabulary;
    EXPECT_EQ(error_of([&] { (void)text_dataset(options)->rows(); }),
              concat("data: ", options.paths[0], " is text and the model, which has ", vocabulary,
                     " ids, no tokenizer, expected one; name it by --tokenizer, or make token "
                     "files by weft tokenize"));
  }
  options.bytes = true;
  EXPECT_EQ(text_dataset(options)->rows(), 4);
}

TEST(TextDataset, LeavesNoFilesBehind) {
  const auto folders = [] {
    int64_t count = 0;
    for (const auto& entry : fs::directory_iterator(fs::temp_directory_path())) {
      count += entry.path().filename().string().starts_with("weft-tokens-");
    }
    return count;
  };
  const int64_t before = folders();
  const auto data = text_dataset(options_of({"chat.jsonl"}, 6));
  EXPECT_GT(data->rows(), 0);
  EXPECT_EQ(folders(), before);
  EXPECT_EQ(read(*data, 0).ids.size(), 32U);
}

TEST(TextDataset, MarksAnswersBeforeATokenAtTheEnd) {
  // Phi's template ends a text with its end token.
  const Tokenizer phi = tokenizer().with_chat_template("phi3");
  const rows::DocumentReader reader({.tokenizer = phi});
  const rows::Document two = reader.line(
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
          {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]})",
      "");
  std::string counted;
  for (size_t i = 0; i < two.ids.size(); ++i) {
    if (two.counts[i]) counted += phi.decode(std::vector<int64_t>{two.ids[i]}, false);
  }
  EXPECT_EQ(counted.find('a'), std::string::npos) << counted;
  EXPECT_EQ(counted.substr(0, 1), "b") << counted;
  EXPECT_NE(counted.find('d'), std::string::npos) << counted;
  EXPECT_EQ(counted.find("<|user|>"), std::string::npos) << counted;
}

}  // namespace
}  // namespace weft
