// SPDX-License-Identifier: Apache-2.0
#include "weft/hugging_face.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/llama_reference.h"
#include "tests/support/scratch.h"
#include "weft/communicator.h"
#include "weft/layers.h"
#include "weft/mesh.h"
#include "weft/ops.h"
#include "weft/ranks.h"
#include "weft/safetensors.h"

namespace weft {

static std::string reference_folder(const std::string& name) {
  return WEFT_SOURCE_DIR "/tests/reference/" + name;
}

TEST(HuggingFace, ALlamaComputesAsTransformers) {
  for (const char* name : {"heads", "grouped", "grouped_tied"}) {
    SCOPED_TRACE(name);
    expect_as_transformers(name);
  }
}

TEST(HuggingFace, RecomputedBlocksComputeAsTransformers) {
  expect_as_transformers("grouped", {.shard = [](TransformerModel& model) {
                           for (Module* block : model.blocks()) block->set_recompute(true);
                         }});
}

/// Two parameters, one a vector; `dtype` of both.
class Pair final : public Module {
 public:
  explicit Pair(DType dtype = f32, bool tied = false) {
    declare("a", {3, 2}, constant_values(7), dtype);
    declare("b", tied ? Shape{3, 2} : Shape{2}, constant_values(7), dtype);
    if (tied) set_parameter("b", own_parameters()[0].second);
  }
  std::vector<float> a() const { return parameters()[0]->value().to_vector<float>(); }
  std::vector<float> b() const { return parameters()[1]->value().to_vector<float>(); }

 protected:
  Tensors forward(const Tensors& inputs) override { return inputs; }
};

template <class T> static std::string bytes_of(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

static const std::vector<float> kA{1, -2, 3.5, 4, 5, -0.25f}, kB{8, 9};

static std::string entry(const std::string& name, const std::string& dtype,
                         const std::string& shape, size_t begin, size_t end) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape +
         R"(,"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

static const std::string kEntryOfA = entry("a", "F32", "[3,2]", 0, 24);
static const std::string kEntryOfB = entry("b", "F32", "[2]", 24, 32);

TEST(HuggingFace, FillsParametersThatAreNotMadeYet) {
  const Scratch scratch;
  const auto path = scratch.write_safetensors(
      "x.safetensors", "{" + kEntryOfA + "," + kEntryOfB + "}", bytes_of(kA) + bytes_of(kB));
  Pair pair;
  load_hugging_face(pair, path);
  EXPECT_EQ(pair.a(), kA);
  EXPECT_EQ(pair.b(), kB);
  EXPECT_TRUE(pair.parameters()[0]->value().requires_grad());
}

TEST(HuggingFace, ConvertsDtypes) {
  const Scratch scratch;
  const std::vector<uint16_t> bf16_of_a{0x3f80, 0xc000, 0x4060, 0x4080, 0x40a0, 0xbe80};
  const std::vector<uint16_t> f16_of_b{0x4800, 0x4880};
  const std::string header =
      "{" + entry("a", "BF16", "[3,2]", 0, 12) + "," + entry("b", "F16", "[2]", 12, 16) + "}";
  const auto path =
      scratch.write_safetensors("x.safetensors", header, bytes_of(bf16_of_a) + bytes_of(f16_of_b));
  for (const DType dtype : {f32, bf16, f64, f16}) {
    Pair pair(dtype);
    load_hugging_face(pair, path);
    EXPECT_EQ(pair.a(), kA) << dtype;
    EXPECT_EQ(pair.b(), kB) << dtype;
    EXPECT_EQ(pair.parameters()[0]->dtype(), dtype);
  }
}

TEST(HuggingFace, ATiedParameterHasAnyOfItsNames) {
  const Scratch scratch;
  for (const char* name : {"a", "b"}) {
    const auto path = scratch.write_safetensors(
        "x.safetensors", "{" + entry(name, "F32", "[3,2]", 0, 24) + "}", bytes_of(kA));
    Pair pair(f32, true);
    load_hugging_face(pair, path);
    EXPECT_EQ(pair.a(), kA);
  }
  const std::string both = "{" + kEntryOfA + "," + entry("b", "F32", "[3,2]", 24, 48) + "}";
  Pair pair(f32, true);
  load_hugging_face(pair,
                    scratch.write_safetensors("x.safetensors", both, bytes_of(kA) + bytes_of(kA)));
  EXPECT_EQ(pair.a(), kA);
  const std::string nan = bytes_of(std::vector<float>(6, std::nanf("")));
  load_hugging_face(pair, scratch.write_safetensors("x.safetensors", both, nan + nan));
  EXPECT_TRUE(std::isnan(pair.a()[0]));
  const auto path = scratch.write_safetensors("x.safetensors", both,
                                              bytes_of(kA) + bytes_of(std::vector<float>(6, 1)));
  EXPECT_EQ(error_of([&] { load_hugging_face(pair, path); }),
            "load_hugging_face: " + path +
                ": tensors \"a\" and \"b\" differ, expected equal ones; they are one tied "
                "parameter of the model");
  const std::string wider =
      "{" + entry("a", "F16", "[3,2]", 0, 12) + "," + entry("b", "F32", "[3,2]", 12, 36) + "}";
  const auto mixed = scratch.write_safetensors("x.safetensors", wider, std::string(36, '\0'));
  EXPECT_EQ(error_of([&] { load_hugging_face(pair, mixed); }),
            "load_hugging_face: " + mixed + ": tensor \"b\" is of f32, expected f16 as \"a\"");
}

TEST(HuggingFace, OldRopeBuffersAreLeftOut) {
  const Scratch scratch;
  const std::string header = "{" + kEntryOfA + "," + kEntryOfB + "," +
                             entry("layers.0.rotary_emb.inv_freq", "F32", "[2]", 32, 40) + "}";
  Pair pair;
  load_hugging_face(pair, scratch.write_safetensors("x.safetensors", header,
                                                    bytes_of(kA) + bytes_of(kB) + bytes_of(kB)));
  EXPECT_EQ(pair.b(), kB);
}

TEST(HuggingFace, NamesWhatDoesNotFit) {
  const Scratch scratch;
  struct Case {
    std::string entries;
    size_t bytes;
    std::string message;
  };
  const Case cases[] = {
      {kEntryOfA, 24, ": tensor \"b\" is missing"},
      {kEntryOfA + "," + kEntryOfB + "," + entry("c", "F32", "[1]", 32, 36), 36,
       ": it holds tensor \"c\", which the model has no parameter for"},
      {kEntryOfA + "," + kEntryOfB + "," + entry("c", "F32", "[1]", 32, 36) + "," +
           entry("d", "F32", "[1]", 36, 40),
       40, ": it holds tensor \"c\" and 1 others, which the model has no parameter for"},
      {entry("a", "F32", "[2,3]", 0, 24) + "," + kEntryOfB, 32,
       ": tensor \"a\" is [2, 3] but the parameter [3, 2]"},
      {entry("a", "I32", "[3,2]", 0, 24) + "," + kEntryOfB, 32,
       ": tensor \"a\" is of i32, expected a floating dtype"},
  };
  for (const Case& c : cases) {
    const auto path = scratch.write_safetensors("x.safetensors", "{" + c.entries + "}",
                                                std::string(c.bytes, '\0'));
    Pair pair;
    EXPECT_EQ(error_of([&] { load_hugging_face(pair, path); }),
              "load_hugging_face: " + path + c.message);
    EXPECT_FALSE(pair.parameters()[0]->is_materialized());
  }
  const auto path = scratch.write_safetensors(
      "x.safetensors", R"({"c":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "1234");
  Pair tied(f32, true);
  EXPECT_EQ(error_of([&] { load_hugging_face(tied, path); }),
            "load_hugging_face: " + path + ": tensor \"a\" (or \"b\") is missing");
}

/// A Linear [130, 2]: two blocks of rows.
class Tall final : public Module {
 public:
  Tall() { declare("w", {130, 2}, constant_values(0)); }

 protected:
  Tensors forward(const Tensors& inputs) override { return inputs; }
};

TEST(HuggingFace, BlocksOfFloat8AreMultipliedByTheirFactors) {
  const Scratch scratch;
  // 1.5, -448; the smallest number 2^-9; and 0.
  std::string codes(260, '\x3c');
  codes[1] = '\xfe', codes[258] = '\x01', codes[259] = '\0';
  const std::vector<float> factors = {2, 10};
  const auto written = [&](const char* dtype) {
    const std::string header = "{" + entry("w", dtype, "[130,2]", 0, 260) + "," +
                               entry("w_scale_inv", "F32", "[2,1]", 260, 268) + "}";
    return scratch.write_safetensors("x.safetensors", header, codes + bytes_of(factors));
  };
  Tall tall;
  for (const char* dtype : {"U8", "F8_E4M3"}) {
    load_hugging_face(tall, written(dtype));
    const auto values = tall.parameters()[0]->value().to_vector<double>();
    EXPECT_EQ(values[0], 3);
    EXPECT_EQ(values[1], -896);
    EXPECT_EQ(values[257], 15);  // row 128 is in the second block
    EXPECT_FLOAT_EQ(static_cast<float>(values[258]), 10.0f / 512);
    EXPECT_EQ(values[259], 0);
  }
  const std::string integers = written("I8");
  EXPECT_NE(error_of([&] { load_hugging_face(tall, integers); }).find("is of i8, expected"),
            std::string::npos);
  const std::string wrong = "{" + entry("w", "U8", "[130,2]", 0, 260) + "," +
                            entry("w_scale_inv", "F32", "[1,1]", 260, 264) + "}";
  const std::string other =
      scratch.write_safetensors("y.safetensors", wrong, codes + bytes_of(std::vector<float>(1, 1)));
  EXPECT_EQ(error_of([&] { load_hugging_face(tall, other); }),
            "load_hugging_face: " + other +
                ": tensor \"w_scale_inv\" is f32 [1, 1], expected f32 "
                "[2, 1], a factor for each block of 128 x 128");
}

TEST(HuggingFace, EachRankReadsWhatItHolds) {
  const std::string folder = reference_folder("grouped");
  TransformerModel whole(transformer_config(folder));
  load_hugging_face(whole, folder);
  for (const int ranks : {2, 3, 5}) {
    run_ranks(ranks,
              [&](Communicator world) {
                const DeviceMesh mesh(world, {{"dp", ranks}});
                TransformerModel model(transformer_config(folder));
                for (const ParameterPtr& parameter : model.parameters()) {
                  const TensorOptions options{.device = meta,
                                              .sharding = Sharding(mesh, {Shard(0)})};
                  parameter->set_value(empty(parameter->shape(), options));
                }
                const int64_t before = world.traffic().bytes;
                load_hugging_face(model, folder);
                EXPECT_EQ(world.traffic().bytes, before);
                const auto sharded = model.parameters(), expected = whole.parameters();
                for (size_t i = 0; i < sharded.size(); ++i) {
                  EXPECT_EQ(sharded[i]->value().full_tensor().to_vector<float>(),
                            expected[i]->value().to_vector<float>());
                }
              },
              {.deadline = std::chrono::seconds(20)});
  }
}

}  // namespace weft
