// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "tests/tp/little_llama.h"
#include "weft/fsdp.h"
#include "weft/layers.h"

namespace weft {
namespace {

/// The error of such styles for a little Llama on two ranks.
std::string error_with(const std::vector<ModuleStyle>& styles) {
  std::string error;
  on_mesh({{"dp", 1}, {"tp", 2}}, [&](const DeviceMesh& mesh) {
    TransformerModel model(little_llama(4, 2));
    const std::string message = error_of([&] { parallelize(model, mesh["tp"], styles); });
    EXPECT_FALSE(model.parameters()[0]->value().is_sharded());
    if (mesh.rank() == 0) error = message;
  });
  return error;
}

TEST(ParallelizeErrors, NamesAPathThatMatchesNothing) {
  EXPECT_EQ(error_with({{"model.layers.*.self_atn.q_proj", Colwise()}}),
            "parallelize: \"model.layers.*.self_atn.q_proj\" matches no module, expected a path of "
            "one; the closest are \"model.layers.*.self_attn.q_proj\", "
            "\"model.layers.*.self_attn.k_proj\", \"model.layers.*.self_attn.o_proj\"");
  EXPECT_EQ(error_with({{"head", Colwise()}}),
            "parallelize: \"head\" matches no module, expected a path of one; the closest are "
            "\"lm_head\", \"model\", \"model.norm\"");
  EXPECT_EQ(error_with({{"model.layers.7", PrepareInput{{Replicate()}}}}),
            "parallelize: \"model.layers.7\" matches no module, expected a path of one; the "
            "closest are \"model.layers.*\", \"model.layers\", \"model.layers.*.mlp\"");
}

TEST(ParallelizeErrors, NamesHeadsThatDoNotDivideAWidth) {
  on_mesh({{"tp", 4}}, [](const DeviceMesh& mesh) {
    TransformerModel model(little_llama(4, 2));
    EXPECT_EQ(error_of([&] {
                parallelize(model, mesh["tp"],
                            {{"model.layers.*.self_attn.q_proj", Colwise{.heads = 5}}});
              }),
              "parallelize: \"model.layers.0.self_attn.q_proj\" has 5 heads in a width of 24, "
              "expected a multiple of the heads");
  });
}

TEST(ParallelizeErrors, NamesStylesThatDoNotFit) {
  EXPECT_EQ(error_with({{"model.norm", Colwise()}}),
            "parallelize: \"model.norm\" is another module, expected a Linear or an Embedding for "
            "Colwise; Layouts states how any parameters are laid out");
  EXPECT_EQ(error_with({{"lm_head", Colwise()}, {"lm_*", Rowwise()}}),
            "parallelize: parameter \"weight\" of \"lm_head\" is laid out as S(1), expected S(0), "
            "as by the style of \"lm_head\"");
  EXPECT_EQ(error_with({{"model.norm", Layouts{.parameters = {{"bias", Shard(0)}}}}}),
            "parallelize: parameter \"bias\" of \"model.norm\" does not exist");
  EXPECT_EQ(error_with({{"model.norm", Layouts{.parameters = {{"weight", Shard(1)}}}}}),
            "parallelize: placement of parameter \"weight\" [20] of \"model.norm\" is S(1), "
            "expected Replicate or a dim that it has");
  EXPECT_EQ(error_with({{"model.norm", Layouts{.parameters = {{"weight", Partial()}}}}}),
            "parallelize: placement of parameter \"weight\" [20] of \"model.norm\" is P(sum), "
            "expected Replicate or a dim that it has");
}

TEST(ParallelizeErrors, NamesTiesThatDisagree) {
  on_mesh({{"tp", 2}}, [](const DeviceMesh& mesh) {
    TransformerConfig config = little_llama(4, 2);
    config.tied = true;
    TransformerModel model(config);
    const std::vector<ModuleStyle> styles = {{"model.embed_tokens", Colwise()},
                                             {"lm_head", Colwise()}};
    EXPECT_EQ(error_of([&] { parallelize(model, mesh["tp"], styles); }),
              "parallelize: parameter \"weight\" of \"lm_head\" is laid out as S(0), expected "
              "S(1), as by the style of \"model.embed_tokens\"");
  });
}

TEST(ParallelizeErrors, NamesWhatIsShardedAlready) {
  on_mesh({{"dp", 1}, {"tp", 2}}, [](const DeviceMesh& mesh) {
    TransformerModel model(little_llama(4, 2));
    parallelize(model, mesh["tp"], transformer_styles(model.config()));
    EXPECT_EQ(error_of([&] { parallelize(model, mesh["tp"], transformer_styles(model.config())); }),
              "parallelize: parameter model.embed_tokens.weight is laid out as mesh(dp=1, tp=2)[R, "
              "S(0)], expected one that is not sharded over tp");
    Linear other(4, 4);
    fully_shard(other, mesh["dp"]);
    other.materialize();
    EXPECT_EQ(error_of([&] {
                parallelize(other, mesh["tp"], {{"", Colwise()}});
              }),
              "parallelize: parameter weight is laid out as mesh(dp=1, tp=2)[S(0), R], expected "
              "none yet; parallelize first, shard over other axes afterwards");
  });
}

TEST(ParallelizeErrors, NamesAMeshThatIsNoAxis) {
  on_mesh({{"dp", 1}, {"tp", 2}}, [](const DeviceMesh& mesh) {
    Linear linear(4, 4);
    EXPECT_EQ(error_of([&] { parallelize(linear, mesh, {}); }),
              "parallelize: mesh(dp=1, tp=2) has 2 axes, expected one, as of mesh[\"tp\"]");
    EXPECT_EQ(error_of([&] { parallelize(linear, DeviceMesh(), {}); }),
              "parallelize: this rank is not in the mesh, expected one of its ranks");
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
              "parallelize: placement of output 0 of the module [3, 4] is S(2), expected a dim "
              "that it has");
    Linear second(4, 4);
    parallelize(second, mesh["tp"], {{"", PrepareInput{{Replicate(), Replicate()}}}});
    second.materialize();
    EXPECT_EQ(error_of([&] {
                second(distribute(zeros({3, 4}), mesh, {}));
              }),
              "parallelize: number of inputs of the module is 1, expected 2, that of its style");
  });
}

}  // namespace
}  // namespace weft
