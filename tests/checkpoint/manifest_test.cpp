// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <sstream>

#include "checkpoint/blocks.h"
#include "checkpoint/source.h"
#include "tests/support/scratch.h"

namespace weft {
namespace {

const std::string kGeneration = "0123456789abcdef";

/// `dim` is cut by the axes of `order`, outermost first; other axes replicate.
SavedSharding sharded(std::vector<MeshAxis> axes, int dim, const Axes& order) {
  SavedSharding sharding{std::move(axes), {}};
  sharding.pattern = Pattern(static_cast<int>(sharding.axes.size()));
  sharding.pattern.set_order(dim, order);
  return sharding;
}
SavedSharding fully_sharded(int ranks) { return sharded({{"dp", ranks}}, 0, {0}); }
SavedSharding hybrid(int replicas, int shards) {
  return sharded({{"replica", replicas}, {"shard", shards}}, 0, {1});
}

Manifest manifest_with(int ranks, std::vector<SavedSharding> layouts,
                       std::vector<SavedTensor> tensors) {
  return {.ranks = ranks,
          .step = 3,
          .generation = kGeneration,
          .layouts = std::move(layouts),
          .tensors = std::move(tensors),
          .numbers = {{"step", 3}}};
}

/// Parameters and two moments of a Llama of 70 billion.
std::vector<SavedTensor> large_llama(size_t layout) {
  std::vector<SavedTensor> tensors;
  const auto add = [&](const std::string& name, const Shape& shape) {
    for (const char* part : {"model/", "optimizer/m/", "optimizer/v/"}) {
      tensors.push_back({part + name, f32, shape, layout});
    }
  };
  add("model.embed_tokens.weight", {128256, 8192});
  for (int i = 0; i < 80; ++i) {
    const std::string block = "model.layers." + std::to_string(i) + ".";
    add(block + "self_attn.q_proj.weight", {8192, 8192});
    add(block + "self_attn.k_proj.weight", {1024, 8192});
    add(block + "self_attn.v_proj.weight", {1024, 8192});
    add(block + "self_attn.o_proj.weight", {8192, 8192});
    add(block + "mlp.gate_proj.weight", {28672, 8192});
    add(block + "mlp.up_proj.weight", {28672, 8192});
    add(block + "mlp.down_proj.weight", {8192, 28672});
    add(block + "input_layernorm.weight", {8192});
    add(block + "post_attention_layernorm.weight", {8192});
  }
  add("model.norm.weight", {8192});
  add("lm_head.weight", {128256, 8192});
  return tensors;
}

TEST(Manifest, SurvivesItsText) {
  const SavedSharding ordered = sharded({{"a", 2}, {"b", 3}}, 1, {1, 0});
  Manifest manifest = manifest_with(
      6, {SavedSharding{}, ordered},
      {{"w \"quoted\" \n", f64, {4, 9}, 1}, {"scalar", bf16, {}, 0}, {"none", boolean, {0}, 0}});
  manifest.numbers = {{"least", INT64_MIN}, {"most", INT64_MAX}};
  EXPECT_EQ(parsed_manifest("here", text_of(manifest)), manifest);
}

TEST(Manifest, NamesFilesByRankAndWorld) {
  EXPECT_EQ(file_name_of(3, 8), "rank-00003-of-00008.safetensors");
  EXPECT_EQ(directory_name_of(100, kGeneration), "step-00000100-0123456789abcdef");
  int rank = 0, ranks = 0;
  EXPECT_TRUE(parse_file_name("rank-123456-of-200000.safetensors", rank, ranks));
  EXPECT_EQ(rank, 123456);
  for (const char* name : {"rank-00008-of-00008.safetensors", "rank-3-of-8.safetensors",
                           "rank-00003-of-00008.safetensors.tmp", "rank--0003-of-00008.safetensors",
                           "../rank-00003-of-00008.safetensors", ""}) {
    EXPECT_FALSE(parse_file_name(name, rank, ranks)) << name;
  }
  int64_t step = 0;
  std::string generation;
  EXPECT_TRUE(parse_directory_name("step-123456789012-0123456789abcdef", step, generation));
  EXPECT_EQ(step, 123456789012);
  EXPECT_EQ(generation, kGeneration);
  for (const char* name : {"step-1-0123456789abcdef", "step-00000001-0123456789abcde",
                           "step-00000001-0123456789ABCDEF", "step-00000001"}) {
    EXPECT_FALSE(parse_directory_name(name, step, generation)) << name;
  }
}

TEST(Manifest, IsWrittenFor4096RanksInUnderASecond) {
  const std::vector<SavedSharding> worlds = {fully_sharded(4096), hybrid(8, 512),
                                             sharded({{"dp", 4096}}, 0, {})};
  for (const SavedSharding& sharding : worlds) {
    const Manifest manifest = manifest_with(4096, {sharding}, large_llama(0));
    // Measures processor time: the machine may be busy with other tests.
    const std::clock_t started = std::clock();
    const RankFiles files(manifest);
    int64_t bytes = 0;
    size_t names = 0;
    for (int rank = 0; rank < 4096; ++rank) {
      names += file_name_of(rank, 4096).size();
      bytes += files.file_bytes(rank) - files.data_start(rank);
    }
    const double seconds = static_cast<double>(std::clock() - started) / CLOCKS_PER_SEC;
    EXPECT_EQ(names, 4096u * 31);
    EXPECT_EQ(bytes, int64_t{70553706496} * 3 * 4);
#ifdef NDEBUG
    EXPECT_LT(seconds, 1.0) << sharding.axes.size();
#endif
  }
}

TEST(Manifest, GivesEachElementOneOwnerAndBalances) {
  const std::vector<SavedTensor> tensors = {{"a", f32, {64, 3}, 0}, {"b", f32, {5, 64}, 0},
                                            {"c", bf16, {7}, 0},    {"d", f32, {128, 2}, 0},
                                            {"e", f32, {0, 3}, 0},  {"f", f32, {}, 1}};
  for (const SavedSharding& sharding :
       {fully_sharded(6), hybrid(3, 2), hybrid(2, 3), hybrid(6, 1)}) {
    const Manifest manifest = manifest_with(6, {sharding, SavedSharding{}}, tensors);
    const RankFiles files(manifest);
    for (size_t i = 0; i < tensors.size(); ++i) {
      std::vector<Box> boxes;
      for (int rank = 0; rank < 6; ++rank) {
        if (const Box* box = files.box_of(i, rank)) boxes.push_back(*box);
      }
      const Shape& shape = tensors[i].shape;
      EXPECT_NO_THROW(check_covers_once("x", {Dims::filled(shape.ndim(), 0), shape}, boxes));
      EXPECT_FALSE(boxes.empty()) << tensors[i].name;
    }
  }
  // 24 equal tensors, whole on each of 6 ranks: 4 each.
  std::vector<SavedTensor> equal;
  for (int i = 0; i < 24; ++i) equal.push_back({std::to_string(i), f32, {10}, 0});
  const RankFiles files(manifest_with(6, {SavedSharding{}}, equal));
  for (int rank = 0; rank < 6; ++rank) EXPECT_EQ(files.data_bytes(rank), 160);
}

TEST(Manifest, TellsTheLengthOfHeadersWithoutWritingThem) {
  std::vector<SavedTensor> tensors;
  for (int i = 0; i < 200; ++i) {
    tensors.push_back({"tensor \"" + std::to_string(i * i) + "\" \u00e9",
                       i % 2 ? f32 : f64,
                       {i * 37 % 50, 12345},
                       0});
  }
  const RankFiles files(manifest_with(6, {hybrid(2, 3)}, tensors));
  for (int rank = 0; rank < 6; ++rank) {
    const std::vector<uint64_t> hashes(static_cast<size_t>(blocks_in(files.data_bytes(rank))), 7);
    const std::string header = files.header(rank, hashes, {rank, rank - 1});
    EXPECT_EQ(static_cast<int64_t>(header.size()), files.data_start(rank));
    EXPECT_EQ(files.data_start(rank) % RankFiles::kAlignment, 0);
  }
}

/// Parts of a manifest, what they are replaced by, and words of the error.
const char* const kBadManifests =
    R"("format":2 | "format":4 | is of format 4; this weft reads 1 to 3
"format":2 | "format":0 | is of format 0; this weft reads 1 to 3
"format":2 | "format":"1" | has a string as "format", not a number
"format":2, |  | has no "format"
"step":3 | "step":-3 | says "-3" as its step
"step":3 | "step":3.5 | says "3.5" as its step
"ranks":4 | "ranks":0 | says "0" as its ranks
"ranks":4 | "ranks":99999999 | says "99999999" as its ranks
"ranks":4 | "ranks":5 | lays tensor "w" over 4 of 5 ranks
["dp",4] | ["dp",0] | says "0" as an axis' size
["dp",4] | ["dp"] | has an axis that is not a name and a size
["dp",4] | ["dp",4],["tp",2] | 1 placements for 2 axes
"dims":[0],"cutting":[[0]] | "dims":[2],"cutting":[[],[],[0]] | placement S(2) of a tensor of 2 dims
"dims":[0] | "dims":[33] | says "33" as a dim
"dims":[0] | "dims":[1] | does not name axis "dp"
"cutting":[[0]] | "cutting":[[0,0]] | does not name axis "dp"
"cutting":[[0]] | "cutting":[[1]] | a cut by axis 1 of 1
"cutting":[[0]] | "cutting":[0] | has an order of cuts that is not a list
"F32" | "F33" | has the dtype "F33"
[8,2] | [8,-2] | says "-2" as a dim's size
[8,2] | [4294967296,4294967296] | of more bytes than 64 bits count
8,2] | 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1] | has a tensor of 33 dims
[8,2],0] | [8,2],1] | says "1" as a tensor's layout
[8,2],0] | [8,2],0],["w","F32",[1],0] | names tensor "w" twice
[8,2],0] | [2305843009213693951],0],["v","F32",[8],0] | has tensors of more bytes than 64 bits count
[8,2],0] | [8,2]] | has a tensor that is not a name, dtype, shape and layout
"numbers":{"step":3} | "numbers":{"step":"3"} | says "\"3\"" as a number
"numbers":{"step":3} | "numbers":[] | has a array as "numbers", not a object
{"format" | {"format":1,"format" | the key "format" stands twice)";

TEST(Manifest, RejectsWhatNobodyWroteInOneSentence) {
  const Manifest manifest = manifest_with(4, {fully_sharded(4)}, {{"w", f32, {8, 2}, 0}});
  const std::string text = text_of(manifest);
  std::istringstream table(kBadManifests);
  for (std::string line; std::getline(table, line);) {
    const size_t second = line.find(" | ") + 3, third = line.find(" | ", second) + 3;
    const std::string from = line.substr(0, second - 3), message = line.substr(third);
    std::string bad = text;
    const size_t at = bad.find(from);
    ASSERT_NE(at, bad.npos) << line;
    bad.replace(at, from.size(), line.substr(second, third - 3 - second));
    const std::string error = error_of([&] { parsed_manifest("here", bad); });
    EXPECT_TRUE(error.starts_with("checkpoint: here: ")) << line << ": " << error;
    EXPECT_NE(error.find(message), error.npos) << line << ": " << error;
  }
  EXPECT_NE(error_of([&] {
              RankFiles(manifest_with(1 << 20, {SavedSharding{}}, large_llama(0)));
            }).find(", expected at most "),
            std::string::npos);
  const std::vector<SavedTensor> shapes{{"a", f32, {1}, 0}, {"b", f32, {2}, 0}, {"c", f32, {3}, 0},
                                        {"d", f32, {4}, 0}, {"e", f32, {5}, 0}, {"f", f32, {6}, 0}};
  EXPECT_EQ(error_of([&] { RankFiles(manifest_with(1 << 20, {SavedSharding{}}, shapes)); }),
            "checkpoint: tensors have 5 or more shapes and layouts on 1048576 ranks, expected at "
            "most 4194304 different parts");
}

TEST(Manifest, ReadsManyNumbersInLinearTime) {
  Manifest manifest = manifest_with(1, {SavedSharding{}}, {{"w", f32, {8}, 0}});
  for (int i = 0; i < 100'000; ++i) manifest.numbers["optimizer/" + std::to_string(i)] = i;
  const std::string text = text_of(manifest);
  const std::clock_t started = std::clock();
  EXPECT_EQ(parsed_manifest("here", text), manifest);
#ifdef NDEBUG
  EXPECT_LT(static_cast<double>(std::clock() - started) / CLOCKS_PER_SEC, 2.0);
#else
  (void)started;
#endif
}

TEST(Manifest, RefusesHeadersThatNoReaderTakes) {
  const auto error = [](size_t letters) {
    const SavedTensor tensor{std::string(letters, 'w'), f32, {8}, 0};
    return error_of([&] { RankFiles(manifest_with(2, {fully_sharded(2)}, {tensor})); });
  };
  EXPECT_EQ(error(30'000'000), "nothing");
  EXPECT_NE(error(40'000'000).find("expected at most 100000000, the limit of safetensors"),
            std::string::npos);
}

TEST(Manifest, ProvesThatElementsAreWrittenOnce) {
  const Box whole{{0, 0}, {4, 6}};
  const auto error = [&](const std::vector<Box>& boxes) {
    return error_of([&] { check_covers_once("w", whole, boxes); });
  };
  EXPECT_EQ(error({{{0, 0}, {4, 2}}, {{0, 2}, {3, 4}}, {{3, 2}, {1, 4}}, {{2, 2}, {0, 4}}}),
            "nothing");
  EXPECT_EQ(error({{{0, 0}, {4, 2}}, {{0, 2}, {3, 4}}}),
            "checkpoint: w has 20 elements of [4, 6] at [0, 0] in the files, expected 24");
  EXPECT_EQ(error({}),
            "checkpoint: w has 0 elements of [4, 6] at [0, 0] in the files, expected 24");
  // The right number of elements, but one twice and one never.
  EXPECT_EQ(error({{{0, 0}, {4, 3}}, {{0, 2}, {4, 3}}}),
            "checkpoint: w is stored as [4, 3] at [0, 0] and [4, 3] at [0, 2], expected each "
            "element once");
  EXPECT_EQ(error({{{0, 0}, {5, 6}}}),
            "checkpoint: w: a part of [5, 6] at [0, 0] is outside of [4, 6] at [0, 0]");
  EXPECT_EQ(error_of([] {
              check_covers_once("s", {{}, {}}, {{{}, {}}, {{}, {}}});
            }),
            "checkpoint: s is stored as [] at [] and [] at [], expected each element once");
  EXPECT_EQ(error_of([] { check_covers_once("s", {{}, {}}, {{{}, {}}}); }), "nothing");
}

}  // namespace
}  // namespace weft
