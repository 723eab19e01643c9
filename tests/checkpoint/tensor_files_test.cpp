// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/scratch.h"
#include "weft/safetensors.h"

namespace weft {
namespace {

const std::string kReference = WEFT_SOURCE_DIR "/tests/reference/";

TEST(TensorFiles, ReadsALlamaOfSeveralFiles) {
  const TensorFiles files(kReference + "grouped");
  EXPECT_EQ(files.files().size(), 3u);
  EXPECT_EQ(files.names().size(), 21u);
  const auto& embedding = files.entry("model.embed_tokens.weight");
  EXPECT_EQ(embedding.shape, (Shape{89, 32}));
  EXPECT_EQ(files.entry("lm_head.weight").shape, (Shape{89, 32}));
  EXPECT_NE(files.file("lm_head.weight").path(), files.file(embedding.name).path());
  EXPECT_FALSE(files.contains("lm_head.bias"));
  // A box equals the same elements of the whole.
  std::vector<float> whole(89 * 32), part(3 * 5);
  files.read_box(embedding.name, {{0, 0}, {89, 32}}, whole.data());
  files.read_box(embedding.name, {{80, 7}, {3, 5}}, part.data());
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = 0; j < 5; ++j) EXPECT_EQ(part[i * 5 + j], whole[(80 + i) * 32 + 7 + j]);
}

TEST(TensorFiles, ReadsOneFileByDirectoryOrName) {
  const TensorFiles by_directory(kReference + "heads");
  const TensorFiles by_name(kReference + "heads/model.safetensors");
  EXPECT_EQ(by_directory.names(), by_name.names());
  EXPECT_EQ(by_name.names().size(), 21u);
  const TensorFiles tied(kReference + "grouped_tied");
  EXPECT_FALSE(tied.contains("lm_head.weight"));
  EXPECT_EQ(error_of([&] { tied.entry("lm_head.weight"); }),
            "safetensors: " + kReference +
                "grouped_tied: tensor \"lm_head.weight\" is missing among 20 others");
}

/// A file of byte tensors, one a letter of `names`.
void write_letters(const Scratch& scratch, const std::string& file, const std::string& names) {
  std::string header = "{";
  for (size_t i = 0; i < names.size(); ++i) {
    header += (i ? ",\"" : "\"") + names.substr(i, 1) +
              R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" + std::to_string(i) + ',' +
              std::to_string(i + 1) + "]}";
  }
  scratch.write_safetensors(file, header + "}", names);
}

TEST(TensorFiles, ReadsAModelOfMoreFilesThanMayBeOpen) {
  namespace fs = std::filesystem;
  const Scratch scratch;
  std::string map;
  for (int i = 0; i < 100; ++i) {
    const std::string number = std::to_string(i), file = "m/" + number + ".safetensors";
    map += (i ? ",\"" : "\"") + number + "\":\"" + number + ".safetensors\"";
    scratch.write_safetensors(
        file, "{\"" + number + R"(":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
        {static_cast<char>(i), static_cast<char>(2 * i)});
  }
  scratch.write("m/model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
  const auto open_files = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  const auto before = open_files();
  const TensorFiles files(scratch.path("m"));
  EXPECT_LT(open_files(), before + 40);
  uint8_t bytes[2];
  for (int i = 0; i < 100; ++i) {
    files.read_box(std::to_string(i), {{0}, {2}}, bytes);
    EXPECT_EQ(bytes[0], i);
    EXPECT_EQ(bytes[1], 2 * i);
  }
  EXPECT_EQ(files.file("7").bytes_read(),
            SafetensorsFile(scratch.path("m/7.safetensors")).bytes_read() + 2);
  // A file that is put in place of another.
  fs::rename(scratch.path("m/8.safetensors"), scratch.path("m/7.safetensors"));
  EXPECT_THROW(files.read_box("7", {{0}, {2}}, bytes), std::runtime_error);
}

struct BadIndex {
  const char* index;
  const char* message;
};

TEST(TensorFiles, RejectsABadIndexInOneSentence) {
  const Scratch scratch;
  write_letters(scratch, "model/one.safetensors", "ab");
  write_letters(scratch, "model/two.safetensors", "bc");
  write_letters(scratch, "outside.safetensors", "a");
  const std::vector<BadIndex> table = {
      {"", " is empty, expected a JSON object"},
      {"[]", ": the JSON value is not an object"},
      {"{", ": not valid JSON: parse error at line 1, column 2"},
      {R"({"weight_map":{}})", "/model: it holds no tensors"},
      {R"({"metadata":{}})", ": object \"weight_map\" is missing"},
      {R"({"weight_map":[]})", ": object \"weight_map\" is missing"},
      {R"({"weight_map":{"a":1}})", ": the file of tensor \"a\" is number, expected string"},
      {R"({"weight_map":{"a":"one.safetensors","a":"two.safetensors"}})",
       ": the key \"a\" stands twice in one object"},
      {R"({"weight_map":{"a":"../outside.safetensors"}})",
       ": the file name \"../outside.safetensors\" is not a plain *.safetensors name"},
      {R"({"weight_map":{"a":"/etc/passwd.safetensors"}})", " is not a plain *.safetensors name"},
      {R"({"weight_map":{"a":"one.bin"}})", " is not a plain *.safetensors name"},
      {R"({"weight_map":{"a":".."}})", " is not a plain *.safetensors name"},
      {R"({"weight_map":{"a":"x\n.safetensors"}})", "\"x\\x0a.safetensors\" is not a plain"},
      {R"({"weight_map":{"a":"three.safetensors"}})", "/three.safetensors: No such file"},
      {R"({"weight_map":{"a":"one.safetensors","z":"one.safetensors"}})",
       ": it places tensor \"z\" in one.safetensors, which does not hold it"},
      {R"({"weight_map":{"a":"one.safetensors"}})",
       "one.safetensors: it holds tensor \"b\", which "},
      {R"({"weight_map":{"a":"one.safetensors","b":"one.safetensors","c":"two.safetensors"}})",
       " places elsewhere"},
  };
  for (const auto& one : table) {
    const std::string index = scratch.write("model/model.safetensors.index.json", one.index);
    const std::string error = error_of([&] { TensorFiles{scratch.path("model")}; });
    EXPECT_NE(error.find(one.message), error.npos) << one.index << "\n" << error;
    EXPECT_TRUE(error.starts_with("safetensors")) << error;
    EXPECT_EQ(error.find('\n'), error.npos) << error;
  }
}

TEST(TensorFiles, RefusesAFileWithoutTensors) {
  const Scratch scratch;
  const std::string path =
      scratch.write("empty.safetensors", std::string("\2\0\0\0\0\0\0\0{}", 10));
  EXPECT_EQ(error_of([&] { TensorFiles{path}; }), "safetensors: " + path + ": it holds no tensors");
}

TEST(TensorFiles, NamesWhatIsMissing) {
  const Scratch scratch;
  EXPECT_EQ(error_of([&] { TensorFiles{scratch.root()}; }),
            "safetensors: " + scratch.root() +
                " holds no model, expected model.safetensors or model.safetensors.index.json");
  const std::string absent = scratch.path("absent");
  EXPECT_EQ(error_of([&] { TensorFiles{absent}; }),
            "safetensors: cannot open " + absent + ": No such file or directory");
}

}  // namespace
}  // namespace weft
