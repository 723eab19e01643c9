// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "tests/tp/little_llama.h"
#include "weft/layers.h"

namespace weft {
namespace {

/// The error of such styles for a little Llama on two ranks.
std::string error_with(const std::vector<ModuleStyle>& styles) {
  std::string error;
  on_mesh({{"dp", 1}, {"tp", 2}}, [&](const DeviceMesh& mesh) {
    Llama model(little_llama(4, 2));
    const std::string message = error_of([&] { parallelize(model, mesh["tp"], styles); });
    EXPECT_FALSE(model.parameters()[0]->value().is_sharded());
    if (mesh.rank() == 0) error = message;
  });
  return error;
}

TEST(ParallelizeErrors, NamesAPathThatMatchesNothing) {
  EXPECT_EQ(error_with({{"model.layers.*.self_atn.q_proj", Colwise()}}),
            "parallelize: \"model.layers.*.self_atn.q_proj\" matches no module; the closest are "
            "\"model.layers.*.self_attn.q_proj\", \"model.layers.*.self_attn.k_proj\", "
            "\"model.layers.*.self_attn.o_proj\"");
  EXPECT_EQ(error_with({{"head", Colwise()}}),
            "parallelize: \"head\" matches no module; the closest are \"lm_head\", \"model\", "
            "\"model.norm\"");
  EXPECT_EQ(error_with({{"model.layers.7", PrepareInput{{Replicate()}}}}),
            "parallelize: \"model.layers.7\" matches no module; the closest are "
            "\"model.layers.*\", \"model.layers\", \"model.layers.*.mlp\"");
}

TEST(ParallelizeErrors, NamesHeadsThatAreNotDivided) {
  on_mesh({{"tp", 4}}, [](const DeviceMesh& mesh) {
    Llama model(little_llama(4, 2));
    EXPECT_EQ(error_of([&] { parallelize(model, mesh["tp"], llama_styles(model.config())); }),
              "parallelize: \"model.layers.0.self_attn.k_proj\" has 2 heads, which the 4 ranks of "
              "axis tp do not divide");
  });
}

TEST(ParallelizeErrors, NamesStylesThatDoNotFit) {
  EXPECT_EQ(error_with({{"model.norm", Colwise()}}),
            "parallelize: \"model.norm\" is neither a Linear nor an Embedding, which Colwise is "
            "for; say with Layouts how its parameters lie");
  EXPECT_EQ(error_with({{"lm_head", Colwise()}, {"lm_*", Rowwise()}}),
            "parallelize: parameter \"weight\" of \"lm_head\" is to be S(1) but S(0) by the style "
            "of \"lm_head\"");
  EXPECT_EQ(error_with({{"model.norm", Layouts{.parameters = {{"bias", Shard(0)}}}}}),
            "parallelize: \"model.norm\" has no parameter of its own called \"bias\"");
  EXPECT_EQ(error_with({{"model.norm", Layouts{.parameters = {{"weight", Shard(1)}}}}}),
            "parallelize: parameter \"weight\" [20] of \"model.norm\" cannot be laid out as S(1)");
  EXPECT_EQ(error_with({{"model.norm", Layouts{.parameters = {{"weight", Partial()}}}}}),
            "parallelize: parameter \"weight\" [20] of \"model.norm\" cannot be laid out as "
            "P(sum)");
}

TEST(ParallelizeErrors, NamesTiesThatDisagree) {
  on_mesh({{"tp", 2}}, [](const DeviceMesh& mesh) {
    LlamaConfig config = little_llama(4, 2);
    config.tied = true;
    Llama model(config);
    const std::vector<ModuleStyle> styles = {{"model.embed_tokens", Colwise()},
                                             {"lm_head", Colwise()}};
    EXPECT_EQ(error_of([&] { parallelize(model, mesh["tp"], styles); }),
              "parallelize: parameter \"weight\" of \"lm_head\" is to be S(0) but S(1) by the "
              "style of \"model.embed_tokens\"");
  });
}

TEST(ParallelizeErrors, NamesWhatIsShardedAlready) {
  on_mesh({{"dp", 1}, {"tp", 2}}, [](const DeviceMesh& mesh) {
    Llama model(little_llama(4, 2));
    parallelize(model, mesh["tp"], llama_styles(model.config()));
    EXPECT_EQ(error_of([&] { parallelize(model, mesh["tp"], llama_styles(model.config())); }),
              "parallelize: parameter model.embed_tokens.weight is sharded over tp already, as "
              "mesh(dp=1, tp=2)[R, S(0)]");
    Linear other(4, 4);
    other.parameters()[0]->set_value(
        empty({4, 4}, {.device = meta, .sharding = Sharding(mesh, {{"dp", Shard(0)}})}));
    EXPECT_EQ(error_of([&] {
                parallelize(other, mesh["tp"], {{"", Colwise()}});
              }),
              "parallelize: parameter weight is laid out as mesh(dp=1, tp=2)[S(0), R] already; "
              "parallelize first, shard over other axes afterwards");
  });
}

TEST(ParallelizeErrors, NamesAMeshThatIsNoAxis) {
  on_mesh({{"dp", 1}, {"tp", 2}}, [](const DeviceMesh& mesh) {
    Linear linear(4, 4);
    EXPECT_EQ(error_of([&] { parallelize(linear, mesh, {}); }),
              "parallelize: mesh(dp=1, tp=2) has 2 axes; give one of them, as mesh[\"tp\"]");
    EXPECT_EQ(error_of([&] { parallelize(linear, DeviceMesh(), {}); }),
              "parallelize: this rank is not in the mesh");
  });
}

TEST(ParallelizeErrors, NamesTensorsThatDoNotFit) {
  on_mesh({{"tp", 2}}, [](const DeviceMesh& mesh) {
    Linear linear(4, 4);
    parallelize(linear, mesh["tp"], {{"", Colwise()}, {"", PrepareOutput{{Shard(2)}}}});
    linear.materialize();
    EXPECT_EQ(
        error_of([&] {
          linear(zeros({3, 4}));
        }),
        "parallelize: input 0 of the module, a tensor [3, 4], has no layout, expected one over "
        "mesh(tp=2); from_local(tensor, mesh, {Shard(0)}) makes it of rows that differ between "
        "ranks, distribute(tensor, mesh, {}) of values that are equal on all");
    EXPECT_EQ(error_of([&] {
                linear(distribute(zeros({3, 4}), mesh, {}));
              }),
              "parallelize: output 0 of the module, a tensor [3, 4], cannot be laid out as S(2)");
    Linear second(4, 4);
    parallelize(second, mesh["tp"], {{"", PrepareInput{{Replicate(), Replicate()}}}});
    second.materialize();
    EXPECT_EQ(error_of([&] {
                second(distribute(zeros({3, 4}), mesh, {}));
              }),
              "parallelize: number of inputs of the module: 1, but its style is for 2");
  });
}

}  // namespace
}  // namespace weft
