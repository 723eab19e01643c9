// SPDX-License-Identifier: Apache-2.0

// Stages whose ranks share sequences, and stages in the shape of a V.

#include <gtest/gtest.h>

#include "tests/pipeline/little_decoder.h"
#include "weft/error.h"

namespace weft {
namespace {

/// Shards over all axes but tp, along which products are cut.
void cut_stage(TransformerModel& stage, const DeviceMesh& mesh) {
  std::vector<std::string_view> data;
  bool has_experts = false;
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    const std::string& name = mesh.axis_name(axis);
    if (name != "tp") data.push_back(name);
    has_experts = has_experts || name == "ep";
  }
  FullyShardOptions options;
  if (has_experts) parallelize_stage(stage, mesh["ep"], expert_styles());
  if (data.size() < static_cast<size_t>(mesh.ndim())) {
    parallelize_stage(stage, mesh["tp"],
                      transformer_styles(stage.config(), {.sequence_parallel = true}));
  }
  if (has_experts) options = with_experts(options, {&stage}, mesh.view(data), "ep");
  for (const auto& unit : stage.units()) fully_shard(unit, mesh.view(data), options);
  fully_shard(stage, mesh.view(data), options);
}

void expect_as_one_rank(const std::vector<MeshAxis>& axes, const TransformerConfig& config,
                        const PipelineProgram& program, int64_t rows, const LittleStep& expected,
                        int steps = 1, double rate = 0) {
  const double bound = rate > 0 ? 5e-4 : 1e-5;
  on_mesh(axes, [&](const DeviceMesh& mesh) {
    LittlePipeline pipeline(mesh, config, program, rate, mesh.ndim() > 1 ? cut_stage : StageCut());
    LittleStep made;
    for (int step = 0; step < steps; ++step) made = pipeline.step(rows, step, rate > 0);
    made.values = pipeline.values(rate == 0);
    expect_near(made, expected, concat(program.name, " on ", mesh).c_str(), bound);
  });
}

TEST(Sequence, StagesThatShareSequencesHaveTheGradientsOfOneRank) {
  const TransformerConfig config = little_decoder(4);
  const LittleStep expected = on_one_rank(config, 2, 3, 1, 0);
  const std::vector<std::vector<MeshAxis>> meshes = {
      {{"pp", 2}, {"cp", 2}},
      {{"pp", 2}, {"cp", 3}},
      {{"pp", 2}, {"shard", 2}, {"cp", 2}},
      {{"pp", 2}, {"cp", 2}, {"tp", 2}},
  };
  for (const auto& axes : meshes) {
    for (const char* name : {"1f1b", "zb"}) {
      expect_as_one_rank(axes, config, pipeline_program(name, 2, 3), 2, expected);
    }
  }
}

/// Some rows end in targets that do not count: they count for no balance of experts either.
TEST(Sequence, ExpertsBalanceWithoutPadding) {
  TransformerConfig config = little_decoder(4);
  config.experts = 4, config.expert_ffn = 10, config.experts_per_token = 2;
  config.balance_loss = true, config.balance_coefficient = 0.5;
  const LittleStep expected = on_one_rank(config, 2, 3, 1, 0);
  const PipelineProgram program = one_forward_one_backward(2, 3);
  expect_as_one_rank({{"pp", 2}}, config, program, 2, expected);
  expect_as_one_rank({{"pp", 2}, {"cp", 2}}, config, program, 2, expected);
  expect_as_one_rank({{"pp", 2}, {"cp", 2}, {"dp", 1}, {"ep", 2}}, config, program, 2, expected);
}

/// Rank 0 has the first stage and the last one.
PipelineProgram in_a_v(int microbatches) {
  std::vector<std::vector<PipelineStep>> table(2);
  for (int m = 0; m < microbatches; ++m) {
    table[0].push_back({PipelineAct::forward, 0, m});
    for (const int stage : {1, 2}) table[1].push_back({PipelineAct::forward, stage, m});
    table[0].push_back({PipelineAct::forward, 3, m});
  }
  for (int m = 0; m < microbatches; ++m) {
    table[0].push_back({PipelineAct::backward, 3, m});
    for (const int stage : {2, 1}) table[1].push_back({PipelineAct::backward, stage, m});
    table[0].push_back({PipelineAct::backward, 0, m});
  }
  return with_messages("v", microbatches, {0, 1, 1, 0}, table);
}

TEST(Sequence, ATiedEmbeddingMayBeInTwoStagesOfARank) {
  const TransformerConfig config = little_decoder(5, true);
  const LittleStep gradients = on_one_rank(config, 2, 3, 1, 0);
  expect_as_one_rank({{"pp", 2}}, config, in_a_v(3), 2, gradients);
  expect_as_one_rank({{"pp", 2}, {"shard", 2}}, config, in_a_v(3), 2, gradients);
  expect_as_one_rank({{"pp", 1}}, config, interleaved(1, 3, 2), 2, gradients);
  const LittleStep trained = on_one_rank(config, 2, 3, 5, 1e-2);
  expect_as_one_rank({{"pp", 2}, {"shard", 2}}, config, in_a_v(3), 2, trained, 5, 1e-2);
}

TEST(Sequence, RowsOfAModelWithDropoutKeepTheirOrder) {
  on_mesh({{"cp", 2}}, [](const DeviceMesh& mesh) {
    TransformerConfig config = little_decoder();
    config.attention_dropout = 0.1;
    const Tensor ids = arange(10, {.dtype = i64}).reshape({2, 5});
    try {
      share_batch(config, ids, {}, {}, mesh["cp"]);
      ADD_FAILURE();
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(std::string(error.what()),
                concat("share_batch: rows have no sharding, expected one over ", mesh));
    }
    TransformerModel model(config);
    fully_shard(model, mesh);
    model.materialize();
    const Tensor rows = distribute(ids, mesh, {});
    const SharedSequence shared = share_sequence(rows, rows, {}, mesh["cp"]);
    try {
      model.loss(shared.ids, shared.targets,
                 {.positions = shared.positions, .order = shared.order});
      ADD_FAILURE();
    } catch (const std::invalid_argument& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("ordered_attention: dropout is given"))
          << error.what();
    }
    const SharedBatch batch = share_batch(config, distribute(ids, mesh, {}), {}, {}, mesh["cp"]);
    EXPECT_FALSE(batch.options.order.places);
    EXPECT_EQ(batch.ids.full_tensor().to_vector<int64_t>(), ids.to_vector<int64_t>());
    EXPECT_EQ(batch.ids.box().shape[1], mesh.rank() == 0 ? 3 : 2);
  });
}

}  // namespace
}  // namespace weft
