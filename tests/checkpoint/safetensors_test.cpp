// SPDX-License-Identifier: Apache-2.0
#include "weft/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <bit>
#include <cmath>
#include <random>
#include <sstream>
#include <thread>

#include "tests/support/scratch.h"

namespace weft {
namespace {

const std::string kData = WEFT_SOURCE_DIR "/tests/checkpoint/data/dtypes.safetensors";

template <class T> std::vector<T> values_of(const SafetensorsFile& file, const std::string& name) {
  const auto& entry = file.entry(name);
  std::vector<T> values(static_cast<size_t>(entry.bytes) / sizeof(T));
  file.read(entry, 0, std::as_writable_bytes(std::span(values)));
  return values;
}

/// The half float of a small whole number, by the definition of the format.
uint16_t half_bits(int value) {
  if (value == 0) return 0;
  const int magnitude = std::abs(value);
  const int exponent = std::bit_width(static_cast<unsigned>(magnitude)) - 1;
  const int fraction = (magnitude << (10 - exponent)) & 0x3ff;
  return static_cast<uint16_t>((value < 0 ? 0x8000 : 0) | (exponent + 15) << 10 | fraction);
}

TEST(Safetensors, ListsWhatThePythonPackageWrote) {
  const SafetensorsFile file(kData);
  EXPECT_EQ(file.entries().size(), 11u);
  const std::map<std::string, std::string> metadata = {{"format", "pt"}, {"note", "línea"}};
  EXPECT_EQ(file.metadata(), metadata);
  for (const char* name : {"f32", "bf16", "f16", "f64", "i32", "i64"}) {
    EXPECT_EQ(file.entry(name).dtype, dtype_named(name));
    EXPECT_EQ(file.entry(name).shape, (Shape{3, 5, 7}));
  }
  EXPECT_EQ(file.entry("u8").shape, Shape{105});
  EXPECT_EQ(file.entry("bool").dtype, DType::boolean);
  EXPECT_EQ(file.entry("scalar").shape, Shape{});
  EXPECT_EQ(file.entry("empty").shape, (Shape{0, 4}));
  EXPECT_EQ(file.entry("empty").bytes, 0);
  EXPECT_EQ(values_of<float>(file, "naïve \"name\""), (std::vector<float>{1, 2}));
  EXPECT_EQ(file.find("nothing"), nullptr);
}

TEST(Safetensors, ReadsTheValuesOfEachDtype) {
  const SafetensorsFile file(kData);
  EXPECT_EQ(values_of<float>(file, "scalar"), std::vector<float>{2.5f});
  EXPECT_TRUE(values_of<float>(file, "empty").empty());
  for (int i = 0; i < 105; ++i) {
    const auto at = static_cast<size_t>(i);
    const auto number = static_cast<float>(i - 7);
    EXPECT_EQ(values_of<float>(file, "f32")[at], number);
    EXPECT_EQ(values_of<double>(file, "f64")[at], i - 7);
    EXPECT_EQ(values_of<int32_t>(file, "i32")[at], i - 7);
    EXPECT_EQ(values_of<int64_t>(file, "i64")[at], i - 7);
    EXPECT_EQ(values_of<uint8_t>(file, "u8")[at], i);
    EXPECT_EQ(values_of<uint8_t>(file, "bool")[at], i % 3 == 0);
    EXPECT_EQ(values_of<uint16_t>(file, "bf16")[at], std::bit_cast<uint32_t>(number) >> 16);
    EXPECT_EQ(values_of<uint16_t>(file, "f16")[at], half_bits(i - 7));
  }
}

TEST(Safetensors, ReadsEveryBoxOfATensor) {
  const SafetensorsFile file(kData);
  const auto& entry = file.entry("i32");
  int boxes = 0;
  for (int64_t a = 0; a <= 3; ++a)
    for (int64_t b = 0; b <= 5; ++b)
      for (int64_t c = 0; c <= 7; ++c)
        for (int64_t na = 0; na <= 3 - a; ++na)
          for (int64_t nb = 0; nb <= 5 - b; ++nb)
            for (int64_t nc = 0; nc <= 7 - c; ++nc, ++boxes) {
              std::vector<int32_t> read(static_cast<size_t>(na * nb * nc) + 1, 77), expected;
              for (int64_t i = a; i < a + na; ++i)
                for (int64_t j = b; j < b + nb; ++j)
                  for (int64_t k = c; k < c + nc; ++k)
                    expected.push_back(static_cast<int32_t>((i * 5 + j) * 7 + k - 7));
              expected.push_back(77);
              file.read_box(entry, {{a, b, c}, {na, nb, nc}}, read.data());
              ASSERT_EQ(read, expected) << a << ' ' << b << ' ' << c << ' ' << na << nb << nc;
            }
  EXPECT_EQ(boxes, 10 * 21 * 36);
}

TEST(Safetensors, ReadsABoxOfAScalarAndOfBytes) {
  const SafetensorsFile file(kData);
  float scalar = 0;
  file.read_box(file.entry("scalar"), {}, &scalar);
  EXPECT_EQ(scalar, 2.5f);
  std::array<uint8_t, 3> bytes{};
  file.read_box(file.entry("u8"), {{100}, {3}}, bytes.data());
  EXPECT_EQ(bytes, (std::array<uint8_t, 3>{100, 101, 102}));
}

/// [rows, columns] of f32, element i of value i.
std::string write_matrix(const Scratch& scratch, int64_t rows, int64_t columns) {
  std::vector<float> values(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  std::ostringstream header;
  header << R"({"w":{"dtype":"F32","shape":[)" << rows << ',' << columns
         << R"(],"data_offsets":[0,)" << rows * columns * 4 << "]}}";
  return scratch.write_safetensors(
      "matrix.safetensors", header.str(),
      std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
}

TEST(Safetensors, ReadsOnlyTheRangesOfTheBox) {
  const Scratch scratch;
  const SafetensorsFile file(write_matrix(scratch, 60, 5000));
  const auto& entry = file.entry("w");
  const auto read_bytes = [&](const Box& box) {
    const int64_t before = file.bytes_read();
    std::vector<float> values(static_cast<size_t>(box.shape.product()));
    file.read_box(entry, box, values.data());
    for (int64_t i = 0; i < box.shape[0]; ++i)
      for (int64_t j = 0; j < box.shape[1]; ++j)
        EXPECT_EQ(values[static_cast<size_t>(i * box.shape[1] + j)],
                  static_cast<float>((box.offset[0] + i) * 5000 + box.offset[1] + j));
    return file.bytes_read() - before;
  };
  EXPECT_EQ(read_bytes({{20, 0}, {20, 5000}}), 20 * 5000 * 4);
  EXPECT_EQ(read_bytes({{0, 1250}, {60, 1250}}), 60 * 1250 * 4);
  // Gaps of 400 bytes are read through, but not before the first run or after the last.
  EXPECT_EQ(read_bytes({{0, 0}, {3, 4900}}), 3 * 4900 * 4 + 2 * 400);
  EXPECT_EQ(read_bytes({{7, 0}, {0, 5000}}), 0);
}

TEST(Safetensors, ReadsFromSeveralThreads) {
  const SafetensorsFile file(kData);
  std::vector<std::thread> threads;
  std::array<int, 4> wrong{};
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&wrong, t, file] {
      for (int64_t i = 0; i < 200; ++i) {
        std::array<int64_t, 7> row{};
        file.read_box(file.entry("i64"), {{i % 3, i % 5, 0}, {1, 1, 7}}, row.data());
        for (int64_t k = 0; k < 7; ++k)
          wrong[t] += row[static_cast<size_t>(k)] != (i % 3 * 5 + i % 5) * 7 + k - 7;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, (std::array<int, 4>{}));
}

TEST(Safetensors, AcceptsBlanksAroundTheHeader) {
  const Scratch scratch;
  const std::string header = R"( {"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}    )";
  const SafetensorsFile file(scratch.write_safetensors("a", header, "ab"));
  EXPECT_EQ(file.entry("w").offset, 8 + static_cast<int64_t>(header.size()));
  const SafetensorsFile nothing(scratch.write_safetensors("b", "{}", ""));
  EXPECT_TRUE(nothing.entries().empty());
}

TEST(Safetensors, OrdersEntriesByTheirBytes) {
  const Scratch scratch;
  const SafetensorsFile file(
      scratch.write_safetensors("a",
                                R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]},)"
                                R"("z":{"dtype":"U8","shape":[0],"data_offsets":[2,2]},)"
                                R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
                                "xyz"));
  std::string order;
  for (const auto& entry : file.entries()) order += entry.name;
  EXPECT_EQ(order, "azb");
}

struct Malformed {
  const char* what;
  std::string header;
  std::string data;
  const char* message;
};

/// A header of one tensor "w" with these fields.
std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"w":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}}";
}

std::string u8(const std::string& shape, const std::string& offsets = "[0,1]") {
  return tensor("\"U8\"", shape, offsets);
}

const std::string kByte = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";

std::vector<Malformed> malformed_headers() {
  const char* const kTooMany = "has more bytes than 64 bits count";
  const char* const kNoPair = "tensor \"w\" has data_offsets that are no list of two numbers";
  return {
      {"nothing", "", "",
       "not valid JSON: parse error at line 1, column 1: syntax error while parsing value - "
       "unexpected end of input"},
      {"cut JSON", R"({"w":{)", "",
       "not valid JSON: parse error at line 1, column 7: syntax error while parsing object key - "
       "unexpected end of input; expected string literal"},
      {"not UTF-8", "{\"\xff\":" + kByte + "}", "a",
       "not valid JSON: parse error at line 1, column 3: syntax error while parsing object key - "
       "invalid string: ill-formed UTF-8 byte"},
      {"half a surrogate", R"({"\ud800":)" + kByte + "}", "a",
       "not valid JSON: parse error at line 1, column 9: syntax error while parsing object key - "
       "invalid string: surrogate U+D800..U+DBFF must be followed by U+DC00..U+DFFF"},
      {"byte order mark", "\xEF\xBB\xBF{}", "", "not valid JSON: it starts with a byte order mark"},
      {"zero byte", std::string("{}\0{", 4), "", "not valid JSON: a zero byte at byte 2"},
      {"two values", "{}{}", "",
       "not valid JSON: parse error at line 1, column 3: syntax error while parsing value - "
       "unexpected '{'; expected end of input"},
      {"list", "[]", "", "the JSON value is not an object"},
      {"number", "7", "", "the JSON value is not an object"},
      {"deep", std::string(R"({"w":)") + std::string(100'000, '['), "",
       "the JSON is more than 32 levels deep"},
      {"two tensors of one name", R"({"w":)" + kByte + R"(,"w":)" + kByte + "}", "a",
       "the key \"w\" stands twice in one object"},
      {"two tensors of one name, escaped", R"({"w":)" + kByte + R"(,"\u0077":)" + kByte + "}", "a",
       "the key \"w\" stands twice in one object"},
      {"two fields of one name",
       R"({"w":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "a",
       "the key \"dtype\" stands twice in one object"},
      {"metadata twice", R"({"__metadata__":{},"__metadata__":{}})", "",
       "the key \"__metadata__\" stands twice in one object"},
      {"metadata key twice", R"({"__metadata__":{"a":"","a":""}})", "",
       "the key \"a\" stands twice in one object"},
      {"metadata of a number", R"({"__metadata__":{"a":1}})", "",
       "__metadata__ has no string at \"a\" but number"},
      {"metadata of a list", R"({"__metadata__":{"a":[]}})", "",
       "__metadata__ holds more than strings"},
      {"metadata is a string", R"({"__metadata__":"a"})", "", "__metadata__ is no JSON object"},
      {"metadata is null", R"({"__metadata__":null})", "", "__metadata__ is no JSON object"},
      {"tensor is a number", R"({"w":1})", "", "tensor \"w\" is no JSON object"},
      {"tensor is a list", R"({"w":[]})", "", "tensor \"w\" is no JSON object"},
      {"no dtype", R"({"w":{"shape":[1],"data_offsets":[0,1]}})", "a", "tensor \"w\" has no dtype"},
      {"no shape", R"({"w":{"dtype":"U8","data_offsets":[0,1]}})", "a",
       "tensor \"w\" has no shape"},
      {"no offsets", R"({"w":{"dtype":"U8","shape":[1]}})", "a",
       "tensor \"w\" has no data_offsets"},
      {"a field too many", R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", "a",
       "tensor \"w\" has a field \"x\"; the fields are dtype, shape, data_offsets"},
      {"an object as field", R"({"w":{"dtype":{},"shape":[1],"data_offsets":[0,1]}})", "a",
       "tensor \"w\" has an object as a field"},
      {"unknown dtype", tensor("\"F9\"", "[1]", "[0,1]"), "a",
       "tensor \"w\" has the dtype \"F9\"; weft reads F32, BF16, F16, F64, I32, I64, U8, BOOL, I8, "
       "I16, U16, U32, U64, F8_E4M3, F8_E5M2"},
      {"dtype is a number", tensor("4", "[1]", "[0,1]"), "a",
       "tensor \"w\" has a dtype that is no string"},
      {"shape is a number", u8("1"), "a", "tensor \"w\" has a shape that is not a list"},
      {"nested shape", u8("[[1]]"), "a", "tensor \"w\" has a list or object inside a list"},
      {"33 dims", u8("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"), "a",
       "tensor \"w\" has a list of more than 32 numbers; tensors have at most 32 dims"},
      {"negative dim", u8("[-1]"), "a", "tensor \"w\" has \"-1\" in its shape"},
      {"negative zero", u8("[-0]", "[0,0]"), "", "tensor \"w\" has \"0\" in its shape"},
      {"fraction", u8("[1.0]"), "a", "tensor \"w\" has \"1.0\" in its shape"},
      {"exponent", u8("[1e0]"), "a", "tensor \"w\" has \"1.0\" in its shape"},
      {"text as dim", u8("[\"1\"]"), "a", "has \"\\\"1\\\"\" in its shape"},
      {"dim of 2^63", u8("[9223372036854775808]"), "a",
       "tensor \"w\" has \"9223372036854775808\" in its shape"},
      {"dim of 2^64", u8("[18446744073709551616]"), "a",
       "has \"1.8446744073709552e+19\" in its shape"},
      {"too many elements", u8("[4294967296,4294967296]", "[0,0]"), "",
       "tensor \"w\" of shape [4294967296, 4294967296] has more bytes than 64 bits count"},
      {"too many elements, none", u8("[0,4294967296,4294967296]", "[0,0]"), "", kTooMany},
      {"too many bytes", tensor("\"F64\"", "[1152921504606846976]", "[0,0]"), "", kTooMany},
      {"offsets are no list", u8("[1]", "1"), "a", kNoPair},
      {"three offsets", u8("[1]", "[0,1,2]"), "a", kNoPair},
      {"negative offset", u8("[1]", "[-1,0]"), "a", "has \"-1\" in its data_offsets"},
      {"fractional offset", u8("[1]", "[0.5,1]"), "a", "has \"0.5\" in its data_offsets"},
      {"offsets backwards", u8("[1]", "[1,0]"), "a",
       "tensor \"w\" has data_offsets from 1 back to 0"},
      {"beyond the file", u8("[2]", "[0,2]"), "a",
       "tensor \"w\" ends at byte 2 of the data, but the file has 1 bytes of data; was it cut?"},
      {"bytes unlike the shape", tensor("\"F32\"", "[2]", "[0,4]"), "abcd",
       "tensor \"w\" of f32 [2] has 8 bytes but data_offsets 0 to 4, which is 4"},
      {"a hole before", u8("[1]", "[1,2]"), "ab",
       "tensor \"w\" starts at byte 1 of the data, but leaves a hole after what ends at 0"},
      {"a hole between",
       R"({"a":)" + kByte + R"(,"w":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})", "abc",
       "tensor \"w\" starts at byte 2 of the data, but leaves a hole after what ends at 1"},
      {"overlap", R"({"a":)" + kByte + R"(,"w":)" + kByte + "}", "a",
       "tensor \"w\" starts at byte 0 of the data, but overlaps what ends at 1"},
      {"bytes left over", u8("[1]"), "ab",
       "the tensors end at byte 1 of the data, but the file has 2 bytes of data"},
  };
}

TEST(Safetensors, RejectsMalformedHeadersInOneSentence) {
  const Scratch scratch;
  for (const auto& one : malformed_headers()) {
    const std::string path = scratch.write_safetensors("bad.safetensors", one.header, one.data);
    const std::string error = error_of([&] { SafetensorsFile{path}; });
    EXPECT_TRUE(error.starts_with("safetensors: " + path + ": ")) << one.what << ": " << error;
    EXPECT_NE(error.find(one.message), error.npos) << one.what << ": " << error;
    EXPECT_EQ(error.find('\n'), error.npos) << one.what;
    EXPECT_LT(error.size(), 400u) << one.what;
  }
}

TEST(Safetensors, OpensOrRejectsWhateverAFileHolds) {
  const std::string whole = bytes_in(kData);
  const Scratch scratch;
  std::mt19937 random(1);
  const std::string likely = "{}[]\",:0123456789-.e\\ \xff" + std::string(1, '\0');
  int rejected = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = whole;
    for (int changes = 0; changes <= i % 3; ++changes) {
      const size_t at = random() % 800;
      switch (random() % 3) {
        case 0: bytes[at] = likely[random() % likely.size()]; break;
        case 1: bytes.erase(at, random() % 9); break;
        default: bytes.insert(at, 1, likely[random() % likely.size()]);
      }
    }
    const std::string path = scratch.write("changed", bytes);
    // Any other exception, or none where memory is touched wrongly, fails the test.
    rejected += error_of([&] { SafetensorsFile{path}; }) != "nothing";
  }
  EXPECT_GT(rejected, 2000);
  EXPECT_LT(rejected, 3000);
}

TEST(Safetensors, RejectsWhatIsNoSafetensorsFile) {
  const Scratch scratch;
  const auto open = [](const std::string& path) {
    return error_of([&] { SafetensorsFile{path}; });
  };
  const std::string bad = scratch.path("bad");
  EXPECT_EQ(open(bad), "safetensors: cannot open " + bad + ": No such file or directory");
  EXPECT_EQ(open(scratch.root()),
            "safetensors: " + scratch.root() + " is a directory, expected a file");
  ASSERT_EQ(::mkfifo(scratch.path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(open(scratch.path("pipe")),
            "safetensors: " + scratch.path("pipe") + " is a pipe, expected a file");
  EXPECT_EQ(open("/dev/null"), "safetensors: /dev/null is a device, expected a file");
  scratch.write("bad", "");
  EXPECT_EQ(open(bad), "safetensors: " + bad + " has 0 bytes, expected a header of at least 8");
  scratch.write("bad", "1234567");
  EXPECT_EQ(open(bad), "safetensors: " + bad + " has 7 bytes, expected a header of at least 8");
  scratch.write_safetensors("bad", "{}", "", 100'000'001);
  EXPECT_EQ(open(bad), "safetensors: " + bad +
                           ": the header would have 100000001 bytes; at most 100000000 are allowed "
                           "(is this a safetensors file?)");
  scratch.write_safetensors("bad", "{}", "", 3);
  EXPECT_EQ(open(bad),
            "safetensors: " + bad +
                ": the header would have 3 bytes, but only 2 follow; the file may be cut short");
}

TEST(Safetensors, SaysWhenTheFileIsCutWhileOpen) {
  const Scratch scratch;
  const std::string path = write_matrix(scratch, 4, 4);
  const SafetensorsFile file(path);
  const auto size = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, size - 4);
  std::array<float, 16> values{};
  const std::string error = error_of<std::runtime_error>(
      [&] { file.read(file.entry("w"), 0, std::as_writable_bytes(std::span(values))); });
  EXPECT_EQ(error, "pread: safetensors: " + path + " ends at byte " + std::to_string(size - 4) +
                       ", but bytes " + std::to_string(size - 64) + " to " + std::to_string(size) +
                       " are wanted; it was cut since it was opened with " + std::to_string(size) +
                       " bytes");
}

TEST(Safetensors, RejectsReadsOutsideTheTensor) {
  const SafetensorsFile file(kData);
  const auto& entry = file.entry("u8");
  std::array<std::byte, 200> into{};
  const std::string start = "safetensors: " + kData + ": tensor \"u8\" ";
  EXPECT_EQ(error_of([&] {
              file.read(entry, 100, {into.data(), 6});
            }),
            start + "has 105 bytes; asked for 6 from 100 on");
  EXPECT_EQ(error_of([&] {
              file.read(entry, -1, {into.data(), 1});
            }),
            start + "has 105 bytes; asked for 1 from -1 on");
  for (const Box& box : {Box{{100}, {6}}, Box{{-1}, {2}}, Box{{0}, {-1}}, Box{{106}, {0}},
                         Box{{0, 0}, {1, 1}}, Box{{1}, {INT64_MAX}}}) {
    EXPECT_TRUE(error_of([&] {
                  file.read_box(entry, box, into.data());
                }).starts_with(start + "of shape [105] has no box of "));
  }
  EXPECT_EQ(error_of([&] { file.entry("x\ny"); }),
            "safetensors: " + kData + ": tensor \"x\\x0ay\" is missing among 11 others");
}

}  // namespace
}  // namespace weft
